#include "proto/support/profile_options.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

constexpr int kDefaultSteps = 5;
constexpr std::int64_t kDefaultBytes = std::int64_t{20} << 20;
// Of all ranks together, where nobody says.
constexpr std::int64_t kJobBytes = std::int64_t{256} << 20;

}  // namespace

absl::StatusOr<v1::ProfileOptions> CheckProfileOptions(v1::ProfileOptions options, int world_size) {
  if (options.steps() < 0 || options.steps() > kMaxProfileSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps is ", options.steps(), ": use 1 to ", kMaxProfileSteps));
  }
  if (options.max_bytes() < 0 || options.max_bytes() > kMaxRankProfileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_bytes is ", options.max_bytes(), ": use at most ", kMaxRankProfileBytes));
  }
  std::set<int> ranks;
  for (const int rank : options.ranks()) {
    if (rank < 0 || rank >= world_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("ranks has ", rank, ": the job has ranks 0 to ", world_size - 1));
    }
    ranks.insert(rank);
  }
  options.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  if (options.steps() == 0) options.set_steps(kDefaultSteps);
  if (options.max_bytes() == 0) {
    const int asked = options.ranks().empty() ? world_size : options.ranks_size();
    options.set_max_bytes(std::min(kDefaultBytes, kJobBytes / std::max(1, asked)));
  }
  return options;
}

}  // namespace fsdp

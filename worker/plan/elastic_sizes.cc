#include "worker/plan/elastic_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/plan/plan.h"

namespace fsdp {
namespace {

// Sizes go up in whole nodes, unless any node will do.
int UnitOf(const v1::ResourceSpec& resources) {
  return resources.any_node() || !resources.has_devices_per_node() ? 1
                                                                   : resources.devices_per_node();
}

// Sizes named in a text, from the smallest.
constexpr std::size_t kSizesNamed = 8;

}  // namespace

bool IsElastic(const v1::TrainingJob& job) {
  const v1::ResourceSpec& resources = job.spec().resources();
  return resources.min_ranks() > 0 || resources.max_ranks() > 0;
}

std::vector<int> ElasticSizes(const v1::TrainingJob& job) {
  const int asked = WorldSizeOf(job);
  if (!IsElastic(job)) return {asked};
  const v1::ResourceSpec& resources = job.spec().resources();
  const int unit = UnitOf(resources);
  const int fewest = resources.min_ranks() > 0 ? resources.min_ranks() : asked;
  const int most = resources.max_ranks() > 0 ? resources.max_ranks() : asked;
  const std::int64_t sequences = GlobalBatchOf(job);
  std::vector<int> sizes;
  std::int64_t largest_share = std::numeric_limits<std::int64_t>::max();
  for (int ranks = fewest; ranks <= most; ranks += unit) {
    const std::int64_t share = (sequences + ranks - 1) / ranks;
    if (share < largest_share || ranks == asked) sizes.push_back(ranks);
    largest_share = share;
  }
  return sizes;
}

std::string ElasticSizesText(const v1::TrainingJob& job) {
  const std::vector<int> sizes = ElasticSizes(job);
  std::string named = absl::StrJoin(
      sizes.begin(),
      sizes.begin() + static_cast<std::ptrdiff_t>(std::min(sizes.size(), kSizesNamed)), ", ");
  if (sizes.size() > kSizesNamed) absl::StrAppend(&named, ", ... ", sizes.back());
  const v1::ResourceSpec& resources = job.spec().resources();
  const int fewest = resources.min_ranks() > 0 ? resources.min_ranks() : sizes.front();
  const int most = resources.max_ranks() > 0 ? resources.max_ranks() : sizes.back();
  const int unit = UnitOf(resources);
  const bool all = sizes.size() == static_cast<std::size_t>((most - fewest) / unit + 1);
  return absl::StrCat(
      fewest, " to ", most, " ranks (", named,
      all ? ""
          : absl::StrCat(": others would shorten no step of ", GlobalBatchOf(job), " sequences"),
      ")");
}

}  // namespace fsdp

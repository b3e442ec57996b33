#include "worker/profile/report/rank_clock.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace fsdp::report {
namespace {

bool IsOneHost(const v1::JobProfile& profile) {
  std::set<std::string> hosts;
  for (const auto& rank : profile.ranks()) hosts.insert(rank.host());
  return hosts.size() <= 1;
}

}  // namespace

std::vector<AlignedRank> AlignRanks(const v1::JobProfile& profile) {
  std::map<std::int32_t, const v1::RankClock*> clocks;
  for (const auto& clock : profile.clocks()) clocks[clock.rank()] = &clock;
  const std::int64_t without_clock = clocks.empty() && IsOneHost(profile) ? 0 : -1;
  std::vector<AlignedRank> ranks;
  for (const auto& rank : profile.ranks()) {
    const auto clock = clocks.find(rank.rank());
    AlignedRank aligned{&rank, rank.begin_ns(), without_clock};
    if (clock != clocks.end()) {
      aligned.shift_ns += clock->second->offset_ns();
      aligned.uncertainty_ns = clock->second->uncertainty_ns();
    }
    ranks.push_back(aligned);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const AlignedRank& a, const AlignedRank& b) {
    return a.profile->rank() < b.profile->rank();
  });
  std::int64_t origin_ns = ranks.empty() ? 0 : ranks.front().shift_ns;
  for (const AlignedRank& rank : ranks) origin_ns = std::min(origin_ns, rank.shift_ns);
  for (AlignedRank& rank : ranks) rank.shift_ns -= origin_ns;
  return ranks;
}

std::string RankTitle(const AlignedRank& rank) {
  std::string title = absl::StrCat("rank ", rank.profile->rank());
  if (rank.uncertainty_ns < 0) return absl::StrCat(title, " (clock not aligned)");
  if (rank.uncertainty_ns == 0) return title;
  if (rank.uncertainty_ns < 1000) {
    return absl::StrCat(title, " (±", rank.uncertainty_ns, " ns)");
  }
  return absl::StrCat(title, " (±", (rank.uncertainty_ns + 999) / 1000, " us)");
}

}  // namespace fsdp::report

#include "worker/profile/report/collective_skew.h"

#include <algorithm>
#include <map>
#include <utility>

#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"

namespace fsdp {
namespace report {
namespace {

// One rank's share of a collective, on the common axis.
struct Share {
  const AlignedRank* rank;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::int64_t step;
};
using SharesByCollective = std::map<std::pair<std::int64_t, std::string>, std::vector<Share>>;

SharesByCollective Shares(const std::vector<AlignedRank>& ranks) {
  SharesByCollective shares;
  for (const AlignedRank& rank : ranks) {
    for (const auto& span : rank.profile->spans()) {
      if (span.sequence() == 0) continue;
      auto& of_collective = shares[{span.sequence(), StringAt(*rank.profile, span.name())}];
      // A rank issues a sequence once.
      if (!of_collective.empty() && of_collective.back().rank == &rank) continue;
      of_collective.push_back(
          {&rank, rank.shift_ns + span.begin_ns(), rank.shift_ns + EndOf(span), span.step()});
    }
  }
  std::erase_if(shares, [](const auto& one) { return one.second.size() < 2; });
  return shares;
}

std::int64_t SumOrUnknown(std::int64_t a, std::int64_t b) { return a < 0 || b < 0 ? -1 : a + b; }

CollectiveSkew SkewOf(const std::vector<Share>& shares) {
  const auto by_begin = [](const Share& a, const Share& b) { return a.begin_ns < b.begin_ns; };
  const auto by_end = [](const Share& a, const Share& b) { return a.end_ns < b.end_ns; };
  const auto [first, last] = std::minmax_element(shares.begin(), shares.end(), by_begin);
  const auto first_end = std::min_element(shares.begin(), shares.end(), by_end);
  CollectiveSkew skew;
  skew.step = first->step;
  skew.num_ranks = static_cast<int>(shares.size());
  skew.skew_ns = last->begin_ns - first->begin_ns;
  skew.uncertainty_ns = SumOrUnknown(first->rank->uncertainty_ns, last->rank->uncertainty_ns);
  skew.first_rank = first->rank->profile->rank();
  skew.last_rank = last->rank->profile->rank();
  skew.wire_ns = std::max<std::int64_t>(0, first_end->end_ns - last->begin_ns);
  return skew;
}

void AddLateness(const std::vector<Share>& shares, const CollectiveSkew& skew,
                 std::map<std::int32_t, RankLateness>* ranks) {
  std::int64_t first_ns = shares.front().begin_ns;
  for (const Share& share : shares) first_ns = std::min(first_ns, share.begin_ns);
  for (const Share& share : shares) {
    RankLateness& rank = (*ranks)[share.rank->profile->rank()];
    rank.rank = share.rank->profile->rank();
    rank.uncertainty_ns = share.rank->uncertainty_ns;
    const double seconds = Seconds(share.begin_ns - first_ns);
    ++rank.collectives;
    rank.mean_seconds += seconds;
    rank.largest_seconds = std::max(rank.largest_seconds, seconds);
    const bool is_certain = skew.uncertainty_ns >= 0 && skew.skew_ns > skew.uncertainty_ns;
    if (rank.rank == skew.last_rank && is_certain) ++rank.times_last;
  }
}

}  // namespace
}  // namespace report

SkewReport BuildSkewReport(const v1::JobProfile& profile) {
  const std::vector<report::AlignedRank> aligned = report::AlignRanks(profile);
  SkewReport report;
  std::map<std::int32_t, RankLateness> ranks;
  for (const auto& [key, shares] : report::Shares(aligned)) {
    CollectiveSkew skew = report::SkewOf(shares);
    skew.sequence = key.first;
    skew.name = key.second;
    report::AddLateness(shares, skew, &ranks);
    report.collectives.push_back(std::move(skew));
  }
  for (auto& [number, rank] : ranks) {
    rank.mean_seconds /= static_cast<double>(rank.collectives);
    report.ranks.push_back(rank);
  }
  std::stable_sort(report.collectives.begin(), report.collectives.end(),
                   [](const auto& a, const auto& b) { return a.skew_ns > b.skew_ns; });
  std::stable_sort(report.ranks.begin(), report.ranks.end(),
                   [](const auto& a, const auto& b) { return a.mean_seconds > b.mean_seconds; });
  return report;
}

}  // namespace fsdp

#ifndef FSDPCTL_WORKER_PROFILE_REPORT_COLLECTIVE_SKEW_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_COLLECTIVE_SKEW_H_

// Who comes late to the collectives: the same collective's begins on all ranks, on one time axis.
// Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// One collective that at least two ranks recorded.
struct CollectiveSkew {
  std::int64_t sequence = 0;
  std::string name;
  std::int64_t step = 0;
  int num_ranks = 0;
  // From the first rank's begin to the last one's.
  std::int64_t skew_ns = 0;
  // Of the first and the last rank's clocks together; negative: unknown.
  std::int64_t uncertainty_ns = 0;
  std::int32_t first_rank = 0;
  std::int32_t last_rank = 0;
  // From the last begin to the first end: the time on the wire, at most; 0 where a rank ended
  // first.
  std::int64_t wire_ns = 0;
};

// How late one rank comes, over all collectives that it shares.
struct RankLateness {
  std::int32_t rank = 0;
  std::int64_t collectives = 0;
  // After each collective's first rank.
  double mean_seconds = 0;
  double largest_seconds = 0;
  // Collectives to which it came last, by more than the clocks are uncertain.
  std::int64_t times_last = 0;
  // Of its clock; negative: unknown.
  std::int64_t uncertainty_ns = 0;
};

struct SkewReport {
  // Largest skew first.
  std::vector<CollectiveSkew> collectives;
  // Latest on average first.
  std::vector<RankLateness> ranks;
};

SkewReport BuildSkewReport(const v1::JobProfile& profile);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_COLLECTIVE_SKEW_H_

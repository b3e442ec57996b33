#ifndef FSDPCTL_WORKER_PROFILE_REPORT_RANK_CLOCK_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_RANK_CLOCK_H_

// One time axis for the recordings of all ranks: the coordinator's monotonic clock, from the
// earliest recording's begin. Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/v1/profile.pb.h"

namespace fsdp::report {

struct AlignedRank {
  // In JobProfile.ranks, whose lifetime it has.
  const v1::RankProfile* profile = nullptr;
  // Added to times since RankProfile.begin_ns.
  std::int64_t shift_ns = 0;
  // Negative: nothing is known of this rank's clock against the others'.
  std::int64_t uncertainty_ns = -1;
};

// By rank. A rank without a RankClock is taken as it stands: exact when all recordings come from
// one host (its processes share the clock) and none has a RankClock, else of unknown uncertainty.
std::vector<AlignedRank> AlignRanks(const v1::JobProfile& profile);

// "rank 1 (±12 us)", "rank 1" where it is exact, "rank 1 (clock not aligned)".
std::string RankTitle(const AlignedRank& rank);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_RANK_CLOCK_H_

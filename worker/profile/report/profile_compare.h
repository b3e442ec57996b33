#ifndef FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_COMPARE_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_COMPARE_H_

// Why a step of one profile takes longer or shorter than one of another. Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// A kernel family in one of the profiles; means of one rank and step.
struct FamilyShare {
  // What of the step is the family's alone: self time of compute, what nothing hides of the rest.
  double seconds = 0;
  // Self time of its launches, hidden or not.
  double busy_seconds = 0;
  double calls = 0;
  double flops = 0;
  double bytes = 0;
};

struct Contribution {
  // A family; "not in a family" for the time in which none ran.
  std::string name;
  // The family has a stream of its own (gathers, scatters, copies): its seconds are the exposed
  // ones.
  bool is_exposed_time = false;
  FamilyShare before;
  FamilyShare after;
  // after.seconds - before.seconds; the contributions add up to the steps' difference.
  double difference_seconds = 0;
  // "matmul.mlp takes 3.10 ms more: 24 instead of 12 calls".
  std::string sentence;
};

struct PhaseDifference {
  std::string phase;
  double before_seconds = 0;
  double after_seconds = 0;
};

// A rank that the others wait for, in one of the profiles at least.
struct LateRank {
  std::int32_t rank = 0;
  // How much later than the first rank it comes to the collectives of a step, in all.
  double before_seconds = 0;
  double after_seconds = 0;
  // "Rank 3 comes 12.3 ms a step late to the collectives instead of 0.41 ms: last in 40 of 44".
  std::string sentence;
};

struct Comparison {
  double before_seconds = 0;
  double after_seconds = 0;
  // Largest difference first.
  std::vector<Contribution> contributions;
  // The phases that add up to a step, largest difference first.
  std::vector<PhaseDifference> phases;
  // Those whose lateness changed by more than 0.5 % of a step; largest difference first.
  std::vector<LateRank> late_ranks;
  // What makes the two hard to compare: other model, world, device, shapes, dropped spans.
  std::vector<std::string> warnings;
};

Comparison Compare(const v1::JobProfile& before, const v1::JobProfile& after);

// The comparison as a text: the steps' difference, warnings, the largest contributions in words,
// tables of families and phases.
std::string CompareText(const v1::JobProfile& before, const v1::JobProfile& after);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_COMPARE_H_

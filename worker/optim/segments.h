#ifndef FSDPCTL_WORKER_OPTIM_SEGMENTS_H_
#define FSDPCTL_WORKER_OPTIM_SEGMENTS_H_

// Which runs of a rank's slice of a unit hold parameters, and how they decay. Padding is in no run.

#include <cstdint>
#include <vector>

#include "worker/device/ops.h"
#include "worker/optim/schedule.h"
#include "worker/plan/plan.h"

namespace fsdp {

// Of `unit`'s slice, ascending; neighbours with the same decay are one.
std::vector<DecaySegment> DecaySegments(const UnitPlan& unit, int rank,
                                        const OptimizerConfig& config);

struct ElementRun {
  std::int64_t begin = 0, end = 0;  // elements of the unit's slice
};

// Runs of `unit`'s slice that hold parameters of any kind, ascending and merged.
std::vector<ElementRun> ParameterRuns(const UnitPlan& unit, int rank);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_OPTIM_SEGMENTS_H_

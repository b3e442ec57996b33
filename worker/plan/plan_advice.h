#ifndef FSDPCTL_WORKER_PLAN_PLAN_ADVICE_H_
#define FSDPCTL_WORKER_PLAN_PLAN_ADVICE_H_

// What would fit: the fewest ranks and the largest micro-batch that devices of a given memory need
// under each recompute policy. Plans of other shapes, nothing estimated beside them. Pure and
// thread-safe; some tenths of a second for a large model.

#include <cstdint>
#include <string>

#include "fsdp/v1/plan.pb.h"
#include "worker/plan/plan.h"

namespace fsdp {

// Of an NVIDIA H200, as CUDA tells it, in whole GiB.
inline constexpr std::int64_t kH200MemoryBytes = std::int64_t{139} << 30;

// World sizes that advice is looked for in: each up to a node of 8, whole nodes up to 8 of them,
// then doubling up to this.
inline constexpr int kLargestAdvisedWorld = 1024;

// For input.device_memory_bytes; when that is 0, for an NVIDIA H200 on CUDA, and no policies on the
// CPU: whatever memory a host has. Of the input's recompute policy nothing is taken.
v1::MemoryAdvice AdviseOnMemory(const PlanInput& input);

// "4 ranks (recompute none), 2 ranks (full), 1 rank (full, microBatch 2)": each with fewer ranks
// than those before it. Empty: nothing fits.
std::string FittingRanksText(const v1::MemoryAdvice& advice);

// What to change in a job that does not fit, in the words of its spec: numbers of ranks and
// micro-batches that do fit, then what else takes less.
std::string MemoryRemedies(const PlanInput& input);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_PLAN_ADVICE_H_

#ifndef FSDPCTL_WORKER_PLAN_PLAN_COST_H_
#define FSDPCTL_WORKER_PLAN_PLAN_COST_H_

// What one step of one rank costs by the plan: counted work, and the time it takes on a device of
// known rates. The counts are those that the engine's launches report (a test compares them).

#include <cstdint>

#include "worker/plan/plan.h"

namespace fsdp {

// Of the rank with the largest share, recomputation included.
struct PlanCost {
  double matmul_flops = 0;
  double attention_flops = 0;  // half of the pairs when causal
  double elementwise_bytes = 0;
  double optimizer_bytes = 0;  // update and gradient norm
  double gather_bytes = 0;     // received, and sent, through the communicators
  double scatter_bytes = 0;
  std::int64_t launches = 0;
};
PlanCost CostOf(const Plan& plan);

// What a device sustains inside a training step (not alone: long matmuls draw the card to its power
// limit), and what a launch adds.
struct StepRates {
  double matmul_flops_per_second = 0;
  double attention_flops_per_second = 0;
  double elementwise_bytes_per_second = 0;
  double optimizer_bytes_per_second = 0;
  double collective_bytes_per_second = 0;  // bus bandwidth between ranks
  double launch_seconds = 0;
};
// Measured on an NVIDIA H200 (docs/benchmarks.md); heads of 64 keep its tensor cores less busy than
// heads of 128.
StepRates H200StepRates(std::int64_t head_dim);

// Seconds of a step: the sum of the above, and of the collectives what compute does not hide.
double StepSeconds(const Plan& plan, const StepRates& rates);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_PLAN_COST_H_

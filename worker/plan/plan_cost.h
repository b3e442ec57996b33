#ifndef FSDPCTL_WORKER_PLAN_PLAN_COST_H_
#define FSDPCTL_WORKER_PLAN_PLAN_COST_H_

// What one step of one rank costs by the plan: counted work, and the time it takes on devices and
// links of known rates. The counts are those that the engine's launches report (a test compares
// them).

#include <cstdint>
#include <vector>

#include "worker/plan/plan.h"

namespace fsdp {

// Of the rank with the largest share, recomputation included.
struct PlanCost {
  double matmul_flops = 0;
  double attention_flops = 0;  // half of the pairs when causal
  double elementwise_bytes = 0;
  double optimizer_bytes = 0;  // update and gradient norm
  std::int64_t launches = 0;

  PlanCost& operator+=(const PlanCost& more);
};
PlanCost CostOf(const Plan& plan);

// One stage of one micro-batch. The head's backward is part of its forward.
struct StageCost {
  PlanCost forward, backward;
};
// Of a micro-batch of `sequences`: embed, the blocks, head.
std::vector<StageCost> StageCostsOf(const Plan& plan, std::int64_t sequences);

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

// Seconds of a step: the stages one after the other, each once its weights are gathered, with
// gathers ahead and scatters behind as the engine issues them (plan_forecast.cc), and the update.
// 0: the rates are not known.
double StepSeconds(const Plan& plan, const StepRates& rates);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_PLAN_COST_H_

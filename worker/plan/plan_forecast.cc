// The time of a step: compute and collectives walk through the stages as the engine issues them
// (worker/train/engine_step.cc), each on a clock of its own.

#include <algorithm>
#include <optional>
#include <vector>

#include "worker/plan/plan_cost.h"

namespace fsdp {
namespace {

class Forecast {
 public:
  Forecast(const Plan& plan, const StepRates& rates)
      : plan_(plan),
        rates_(rates),
        head_(static_cast<int>(plan.stages.size()) - 1),
        gathered_(plan.stages.size()),
        scattered_(plan.stages.size()) {}

  double Seconds() {
    PlanCost rest = CostOf(plan_);
    for (std::int64_t i = 0; i < plan_.split.num_micro_batches(); ++i) {
      const std::vector<StageCost> stages = StageCostsOf(plan_, plan_.split.MicroBatch(0, i).count);
      MicroBatch(stages, /*last=*/i + 1 == plan_.split.num_micro_batches());
      for (const StageCost& stage : stages) {
        rest.launches -= stage.forward.launches + stage.backward.launches;
      }
    }
    // The norm needs every gradient.
    for (int stage = 0; stage <= head_; ++stage) WaitScatter(stage);
    return compute_ + rest.optimizer_bytes / rates_.optimizer_bytes_per_second +
           static_cast<double>(rest.launches) * rates_.launch_seconds;
  }

 private:
  void MicroBatch(const std::vector<StageCost>& stages, bool last) {
    const bool ahead = plan_.input.prefetch > 0;
    const bool keeps = !plan_.input.reshard_after_forward;
    WaitScatter(1);
    Gather(0);
    for (int stage = 0; stage < head_; ++stage) {
      if (stage == 1) WaitScatter(0);
      if (ahead) Gather(stage + 1);
      Acquire(stage);
      Compute(stages[static_cast<std::size_t>(stage)].forward);
      Release(stage, keeps || stage == head_ - 1);
    }
    Acquire(head_);
    Compute(stages.back().forward);
    Release(head_, keeps);
    Scatter(head_);
    for (int stage = head_ - 1; stage > 0; --stage) {
      WaitScatter(stage + 2);
      if (ahead && stage > 1) Gather(stage - 1);
      Acquire(stage);
      Compute(stages[static_cast<std::size_t>(stage)].backward);
      Release(stage, keeps);
      Scatter(stage);
    }
    WaitScatter(2);
    if (ahead && !last) Gather(0);
    Compute(stages.front().backward);
    Scatter(0);
  }

  void Compute(const PlanCost& cost) {
    compute_ += cost.matmul_flops / rates_.matmul_flops_per_second +
                cost.attention_flops / rates_.attention_flops_per_second +
                cost.elementwise_bytes / rates_.elementwise_bytes_per_second +
                static_cast<double>(cost.launches) * rates_.launch_seconds;
  }

  // Gathers and scatters share the links, so they take turns, in the order of their issue. Returns
  // when this one, which may begin now, has ended.
  double Move(int stage, DType dtype) {
    const int world = plan_.input.world_size;
    if (world == 1) return compute_;
    const int index = plan_.stages[static_cast<std::size_t>(stage)].unit;
    const ShardLayout& layout = plan_.units[static_cast<std::size_t>(index)].layout;
    const double bytes = static_cast<double>(layout.unit_elements()) *
                         static_cast<double>(SizeOf(dtype)) * (world - 1) / world;
    links_ = std::max(links_, compute_) + bytes / rates_.collective_bytes_per_second;
    return links_;
  }
  void Gather(int stage) {
    auto& at = gathered_[static_cast<std::size_t>(stage)];
    if (!at.has_value()) at = Move(stage, plan_.input.parameter_dtype);
  }
  void Acquire(int stage) {
    Gather(stage);
    compute_ = std::max(compute_, *gathered_[static_cast<std::size_t>(stage)]);
  }
  void Release(int stage, bool keep) {
    if (!keep) gathered_[static_cast<std::size_t>(stage)].reset();
  }
  void Scatter(int stage) {
    scattered_[static_cast<std::size_t>(stage)] = Move(stage, plan_.gradient_dtype());
  }
  void WaitScatter(int stage) {
    if (stage > head_) return;
    compute_ = std::max(compute_, scattered_[static_cast<std::size_t>(stage)]);
  }

  const Plan& plan_;
  const StepRates& rates_;
  const int head_;
  double compute_ = 0;  // until when the compute stream is busy
  double links_ = 0;
  std::vector<std::optional<double>> gathered_;  // by stage: when its weights are there
  std::vector<double> scattered_;                // by stage: when its newest scatter ends
};

}  // namespace

double StepSeconds(const Plan& plan, const StepRates& rates) {
  if (rates.matmul_flops_per_second <= 0) return 0;
  return Forecast(plan, rates).Seconds();
}

}  // namespace fsdp

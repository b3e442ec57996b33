#include "worker/plan/plan_cost.h"

#include <algorithm>

namespace fsdp {
namespace {

// Counts one micro-batch of `tokens` tokens.
class Counter {
 public:
  Counter(const Plan& plan, std::int64_t tokens, PlanCost& cost)
      : plan_(plan),
        model_(plan.input.model),
        tokens_(static_cast<double>(tokens)),
        element_(static_cast<double>(SizeOf(plan.input.parameter_dtype))),
        cost_(cost) {}

  void Count() {
    Elementwise(2 * Dim());  // embedding forward
    for (std::size_t layer = 0; layer < plan_.blocks.size(); ++layer) {
      const KeepPolicy keep = plan_.blocks[layer].keep;
      Forward(layer == 0);
      if (keep != KeepPolicy::kAll) Redo(keep);
      Backward();
    }
    Head();
    Elementwise(2 * Dim());  // embedding backward
  }

 private:
  [[nodiscard]] double Dim() const { return static_cast<double>(model_.dim); }
  [[nodiscard]] double Qkv() const { return static_cast<double>(model_.qkv_dim()); }
  [[nodiscard]] double Query() const { return static_cast<double>(model_.q_dim()); }
  [[nodiscard]] double Mlp() const { return static_cast<double>(model_.mlp_dim); }
  [[nodiscard]] double MlpIn() const { return static_cast<double>(model_.mlp_in_dim()); }

  // `columns` activations a token read or written.
  void Elementwise(double columns) {
    cost_.elementwise_bytes += tokens_ * columns * element_;
    ++cost_.launches;
  }
  void MatMul(double in, double out) {
    cost_.matmul_flops += 2 * tokens_ * in * out;
    ++cost_.launches;
  }
  // Gradients of input and of weight, and of the bias where there is one.
  void MatMulBackward(double in, double out, bool bias) {
    MatMul(in, out);
    MatMul(in, out);
    if (bias) Elementwise(out);
  }
  void Attention(double products) {
    cost_.attention_flops += products * 2 * tokens_ *
                             static_cast<double>(plan_.input.sequence_length) * Query() *
                             (model_.causal ? 0.5 : 1.0);
    ++cost_.launches;
  }
  void Rope() {
    if (model_.position == PositionKind::kRope) Elementwise(2 * Qkv());
  }
  // Up to the input of the MLP's activation; `first`: no residual is added by the first norm.
  void AttentionHalf(bool first) {
    Elementwise((first ? 2 : 4) * Dim());
    MatMul(Dim(), Qkv());
    Rope();
    Attention(2);
    MatMul(Query(), Dim());
    Elementwise(4 * Dim());
  }
  void Forward(bool first) {
    AttentionHalf(first);
    MatMul(Dim(), MlpIn());
    Elementwise(MlpIn() + Mlp());
    MatMul(Mlp(), Dim());
  }
  void Redo(KeepPolicy keep) {
    if (keep == KeepPolicy::kInputOnly) {
      AttentionHalf(/*first=*/true);
    } else {
      Elementwise(2 * Dim());
    }
    MatMul(Dim(), MlpIn());
  }
  void Backward() {
    MatMulBackward(Mlp(), Dim(), model_.mlp_bias);
    Elementwise(2 * MlpIn() + 2 * Mlp());
    MatMulBackward(Dim(), MlpIn(), model_.mlp_bias);
    Elementwise(5 * Dim());
    MatMulBackward(Query(), Dim(), model_.attn_out_bias);
    Attention(5);
    Rope();
    MatMulBackward(Dim(), Qkv(), model_.qkv_bias);
    Elementwise(5 * Dim());
  }
  void Head() {
    const auto vocab = static_cast<double>(model_.vocab_size);
    const auto chunk = static_cast<double>(plan_.head.chunk_tokens);
    Elementwise((model_.final_norm ? 4 : 3) * Dim());
    cost_.matmul_flops += 6 * tokens_ * Dim() * vocab;
    cost_.elementwise_bytes += 2 * tokens_ * vocab * element_;
    cost_.launches += 4 * static_cast<std::int64_t>((tokens_ + chunk - 1) / chunk);
    if (model_.final_norm) Elementwise(3 * Dim());
  }

  const Plan& plan_;
  const ModelConfig& model_;
  double tokens_;
  double element_;
  PlanCost& cost_;
};

// Bytes of all units' weights and gradients, as each rank must receive or send them.
void CountCollectives(const Plan& plan, PlanCost& cost) {
  const double world = plan.input.world_size;
  if (plan.input.world_size == 1) return;
  const auto micro_batches = static_cast<double>(plan.split.num_micro_batches());
  const bool reshard = plan.input.reshard_after_forward;
  const std::size_t last_block = plan.blocks.size();
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const UnitPlan& unit = plan.units[static_cast<std::size_t>(plan.stages[stage].unit)];
    const double elements = static_cast<double>(unit.layout.unit_elements()) * (world - 1) / world;
    const bool again = stage > 0 && stage < last_block;  // gathered for backward too
    const double gathers = reshard ? micro_batches * (again ? 2 : 1) : 1;
    cost.gather_bytes +=
        gathers * elements * static_cast<double>(SizeOf(plan.input.parameter_dtype));
    cost.scatter_bytes +=
        micro_batches * elements * static_cast<double>(SizeOf(plan.gradient_dtype()));
  }
}

}  // namespace

PlanCost CostOf(const Plan& plan) {
  PlanCost cost;
  for (std::int64_t i = 0; i < plan.split.num_micro_batches(); ++i) {
    const std::int64_t sequences = plan.split.MicroBatch(0, i).count;
    if (sequences > 0) Counter(plan, sequences * plan.input.sequence_length, cost).Count();
  }
  std::int64_t mine = 0;
  for (const UnitPlan& unit : plan.units) mine += unit.layout.shard_elements;
  const auto wide = static_cast<double>(SizeOf(plan.master_dtype()));
  // Weight, m and v read and written, the gradient read; and once before, for its norm.
  cost.optimizer_bytes = 8 * wide * static_cast<double>(mine);
  cost.launches += 2 * static_cast<std::int64_t>(plan.units.size());
  CountCollectives(plan, cost);
  return cost;
}

StepRates H200StepRates(std::int64_t head_dim) {
  StepRates rates;
  rates.matmul_flops_per_second = 695e12;
  rates.attention_flops_per_second = head_dim >= 128 ? 390e12 : 320e12;
  rates.elementwise_bytes_per_second = 3.7e12;
  rates.optimizer_bytes_per_second = 3.95e12;
  rates.collective_bytes_per_second = 350e9;
  rates.launch_seconds = 1.7e-6;
  return rates;
}

double StepSeconds(const Plan& plan, const StepRates& rates) {
  if (rates.matmul_flops_per_second <= 0) return 0;
  const PlanCost cost = CostOf(plan);
  const double compute = cost.matmul_flops / rates.matmul_flops_per_second +
                         cost.attention_flops / rates.attention_flops_per_second +
                         cost.elementwise_bytes / rates.elementwise_bytes_per_second +
                         static_cast<double>(cost.launches) * rates.launch_seconds;
  const double update = cost.optimizer_bytes / rates.optimizer_bytes_per_second;
  if (plan.input.world_size == 1) return compute + update;
  const double moved = (cost.gather_bytes + cost.scatter_bytes) / rates.collective_bytes_per_second;
  // The first gather and the last two scatters have nothing to hide behind.
  const auto stages = static_cast<double>(plan.stages.size());
  const double edge = moved / stages;
  return std::max(compute, moved - edge) + edge + update;
}

}  // namespace fsdp

#include "worker/plan/plan_cost.h"

namespace fsdp {
namespace {

// Counts one stage of a micro-batch of `tokens` tokens.
class Counter {
 public:
  Counter(const Plan& plan, std::int64_t tokens, PlanCost& cost)
      : plan_(plan),
        model_(plan.input.model),
        tokens_(static_cast<double>(tokens)),
        element_(static_cast<double>(SizeOf(plan.input.parameter_dtype))),
        cost_(cost) {}

  // Either way.
  void Embed() { Elementwise(2 * Dim()); }
  void BlockForward(bool first) {
    AttentionHalf(first);
    MatMul(Dim(), MlpIn());
    Elementwise(MlpIn() + Mlp());
    MatMul(Mlp(), Dim());
  }
  void BlockBackward(KeepPolicy keep) {
    if (keep > KeepPolicy::kAll) Redo(keep);
    // Outputs that were not kept are written again.
    const int again = keep == KeepPolicy::kOutputs ? 0 : 1;
    MatMulBackward(Mlp(), Dim(), model_.mlp_bias);
    Elementwise(2 * MlpIn() + (1 + again) * Mlp());
    MatMulBackward(Dim(), MlpIn(), model_.mlp_bias);
    Elementwise((4 + again) * Dim());
    MatMulBackward(Query(), Dim(), model_.attn_out_bias);
    Attention(5);
    Rope();
    MatMulBackward(Dim(), Qkv(), model_.qkv_bias);
    Elementwise((4 + again) * Dim());
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
    // With a norm of q and k, the same pass also reads or writes what they were before it.
    if (model_.position == PositionKind::kRope) Elementwise((model_.qk_norm ? 3 : 2) * Qkv());
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
  void Redo(KeepPolicy keep) {
    if (keep == KeepPolicy::kInputOnly) {
      AttentionHalf(/*first=*/true);
    } else {
      Elementwise(2 * Dim());
    }
    MatMul(Dim(), MlpIn());
  }

  const Plan& plan_;
  const ModelConfig& model_;
  double tokens_;
  double element_;
  PlanCost& cost_;
};

}  // namespace

PlanCost& PlanCost::operator+=(const PlanCost& more) {
  matmul_flops += more.matmul_flops;
  attention_flops += more.attention_flops;
  elementwise_bytes += more.elementwise_bytes;
  optimizer_bytes += more.optimizer_bytes;
  launches += more.launches;
  return *this;
}

std::vector<StageCost> StageCostsOf(const Plan& plan, std::int64_t sequences) {
  std::vector<StageCost> costs(plan.stages.size());
  if (sequences == 0) return costs;
  const std::int64_t tokens = sequences * plan.input.sequence_length;
  Counter(plan, tokens, costs.front().forward).Embed();
  Counter(plan, tokens, costs.front().backward).Embed();
  for (std::size_t layer = 0; layer < plan.blocks.size(); ++layer) {
    StageCost& cost = costs[layer + 1];
    Counter(plan, tokens, cost.forward).BlockForward(layer == 0);
    Counter(plan, tokens, cost.backward).BlockBackward(plan.blocks[layer].keep);
  }
  Counter(plan, tokens, costs.back().forward).Head();
  return costs;
}

PlanCost CostOf(const Plan& plan) {
  PlanCost cost;
  for (std::int64_t i = 0; i < plan.split.num_micro_batches(); ++i) {
    for (const StageCost& stage : StageCostsOf(plan, plan.split.MicroBatch(0, i).count)) {
      cost += stage.forward;
      cost += stage.backward;
    }
  }
  std::int64_t mine = 0;
  for (const UnitPlan& unit : plan.units) mine += unit.layout.shard_elements;
  const auto wide = static_cast<double>(SizeOf(plan.master_dtype()));
  // Weight, m and v read and written, the gradient read; and once before, for its norm.
  cost.optimizer_bytes = 8 * wide * static_cast<double>(mine);
  cost.launches += 2 * static_cast<std::int64_t>(plan.units.size());
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

}  // namespace fsdp

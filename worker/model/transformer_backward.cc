// Backward, stage by stage, in the order of plan_ticks.h.

#include <algorithm>

#include "proto/support/status.h"
#include "worker/model/transformer.h"

namespace fsdp {
namespace {

const char* BackwardNameOf(MlpKind kind) {
  switch (kind) {
    case MlpKind::kSwiGlu:
      return "swiglu.bwd";
    case MlpKind::kGelu:
      return "gelu.bwd";
    case MlpKind::kSilu:
      break;
  }
  return "silu.bwd";
}

}  // namespace

absl::Status Transformer::ActivationBackward(const Matrix& d_out, const Matrix& in,
                                             const Matrix& d_in, const Matrix& out) {
  const double bytes = BytesOf(in) + BytesOf(d_out) + BytesOf(d_in) + BytesOf(out);
  const double flops = 14.0 * static_cast<double>(d_out.rows * d_out.cols);
  return Run(Work(KernelFamily::kActivation, BackwardNameOf(model_.mlp), d_out, flops, bytes), [&] {
    switch (model_.mlp) {
      case MlpKind::kSwiGlu:
        return ops_.SwiGluBackward(stream_, d_out, in, d_in, out);
      case MlpKind::kGelu:
        return ops_.GeluBackward(stream_, d_out, in, d_in, out);
      case MlpKind::kSilu:
        break;
    }
    return ops_.SiluBackward(stream_, d_out, in, d_in, out);
  });
}

absl::Status Transformer::HeadForwardBackward(const ModelBatch& batch, const UnitView& weights,
                                              const GradientTarget& gradients, StepStats* stats) {
  RETURN_IF_ERROR(HeadNorm(batch, weights));
  const std::int64_t tokens = Tokens(batch);
  const std::int64_t chunk = plan_.head.chunk_tokens;
  const Matrix input = HeadInput(batch);
  const Matrix d_x = Act(plan_.d_x, batch, model_.dim);
  const Matrix d_input = model_.final_norm ? Act(plan_.head.d_normed, batch, model_.dim) : d_x;
  const Matrix weight = HeadWeight(weights);
  const Matrix d_weight = HeadWeight(gradients.view);
  for (std::int64_t at = 0; at < tokens; at += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - at);
    RETURN_IF_ERROR(ChunkLogits(batch, weights, at, rows));
    RETURN_IF_ERROR(ChunkLoss(batch, at, rows, stats, /*loss_only=*/false));
    RETURN_IF_ERROR(LinearWeightGrad(KernelFamily::kMatMulHead, Logits(rows),
                                     RowsOf(input, at, rows), d_weight, /*in_out=*/false,
                                     gradients.accumulate || at > 0));
    RETURN_IF_ERROR(LinearInputGrad(KernelFamily::kMatMulHead, Logits(rows), weight,
                                    /*in_out=*/false, RowsOf(d_input, at, rows)));
  }
  if (!model_.final_norm) return absl::OkStatus();
  return NormBackward({Role::kFinalNormWeight, Role::kFinalNormBias}, weights, gradients, d_input,
                      Act(plan_.head.x, batch, model_.dim), {}, d_x, {}, plan_.head.norm_stats,
                      arena_.Bytes(plan_.head.scratch));
}

absl::Status Transformer::RedoForward(const BlockBuffers& block, const ModelBatch& batch,
                                      const UnitView& weights) {
  if (block.keep <= KeepPolicy::kAll) return absl::OkStatus();
  const BlockTape& tape = block.backward;
  const BlockBuffers::Work& work = block.backward_work;
  const std::int64_t d = model_.dim;
  const Matrix x = Act(block.x, batch, d);
  const Matrix x2 = Act(tape.x2, batch, d);
  const Matrix normed2 = Act(work.normed2, batch, d);
  const NormRoles norm2{Role::kNorm2Weight, Role::kNorm2Bias};
  if (block.keep == KeepPolicy::kInputOnly) {
    RETURN_IF_ERROR(AttentionHalf(tape, work, batch, weights, x, {}, {}));
    const Matrix attn_out = Act(work.attn_out, batch, d);
    RETURN_IF_ERROR(Linear(KernelFamily::kMatMulAttnOut, Act(tape.attn, batch, model_.q_dim()),
                           weights.Weight(Role::kAttnOutWeight), model_.weights_in_out,
                           weights.Values(Role::kAttnOutBias), attn_out));
    RETURN_IF_ERROR(Norm(norm2, weights, x, attn_out, x2, normed2, tape.norm2_stats));
  } else {
    RETURN_IF_ERROR(Norm(norm2, weights, x2, {}, {}, normed2, tape.norm2_stats));
  }
  return MlpIn(normed2, weights, Act(tape.mlp_in, batch, model_.mlp_in_dim()));
}

// From the block's output gradient in d_x to the gradient at x2, also in d_x.
absl::Status Transformer::MlpBackward(const BlockBuffers& block, const ModelBatch& batch,
                                      const UnitView& weights, const GradientTarget& gradients) {
  const BlockTape& tape = block.backward;
  const bool in_out = model_.weights_in_out;
  const bool accumulate = gradients.accumulate;
  const std::span<std::byte> scratch = arena_.Bytes(block.sum_scratch);
  const auto family = KernelFamily::kMatMulMlp;
  const Matrix d_x = Act(plan_.d_x, batch, model_.dim);
  const Matrix d_act = Act(block.d_act, batch, model_.mlp_dim);
  RETURN_IF_ERROR(LinearInputGrad(family, d_x, weights.Weight(Role::kMlpOutWeight), in_out, d_act));

  const Matrix d_mlp_in = Act(block.d_mlp_in, batch, model_.mlp_in_dim());
  const bool kept = block.keep == KeepPolicy::kOutputs;
  const Matrix act = Act(block.act, batch, model_.mlp_dim);
  RETURN_IF_ERROR(ActivationBackward(d_act, Act(tape.mlp_in, batch, model_.mlp_in_dim()), d_mlp_in,
                                     kept ? Matrix{} : act));
  RETURN_IF_ERROR(LinearWeightGrad(family, d_x, act, gradients.view.Weight(Role::kMlpOutWeight),
                                   in_out, accumulate));
  RETURN_IF_ERROR(BiasGrad(d_x, gradients.view.Values(Role::kMlpOutBias), accumulate, scratch));

  const Matrix d_normed = Act(block.d_normed2, batch, model_.dim);
  RETURN_IF_ERROR(
      LinearInputGrad(family, d_mlp_in, weights.Weight(Role::kMlpInWeight), in_out, d_normed));
  const Matrix normed = Act(block.normed2, batch, model_.dim);
  RETURN_IF_ERROR(NormBackward({Role::kNorm2Weight, Role::kNorm2Bias}, weights, gradients, d_normed,
                               Act(tape.x2, batch, model_.dim), d_x, d_x, kept ? Matrix{} : normed,
                               tape.norm2_stats, scratch));
  RETURN_IF_ERROR(LinearWeightGrad(family, d_mlp_in, normed,
                                   gradients.view.Weight(Role::kMlpInWeight), in_out, accumulate));
  return BiasGrad(d_mlp_in, gradients.view.Values(Role::kMlpInBias), accumulate, scratch);
}

absl::Status Transformer::RotateHeadsBackward(const BlockTape& tape, const Matrix& d_qkv,
                                              const AttentionShape& shape, const UnitView& weights,
                                              const GradientTarget& gradients,
                                              std::span<std::byte> scratch) {
  if (model_.position != PositionKind::kRope) return absl::OkStatus();
  const auto elements = static_cast<double>(d_qkv.rows * d_qkv.cols);
  if (!model_.qk_norm) {
    return Run(Work(KernelFamily::kRope, "rope.bwd", d_qkv, 3 * elements, 2 * BytesOf(d_qkv)), [&] {
      return ops_.Rope(stream_, d_qkv, shape, RopeTableOf(plan_.rope_cos),
                       RopeTableOf(plan_.rope_sin), /*inverse=*/true);
    });
  }
  return Run(
      Work(KernelFamily::kRope, "qk_norm_rope.bwd", d_qkv, 14 * elements, 3 * BytesOf(d_qkv)), [&] {
        return ops_.QkNormRopeBackward(stream_, d_qkv, shape, QkNorm(tape, d_qkv.rows, weights),
                                       gradients.view.Values(Role::kQNormWeight),
                                       gradients.view.Values(Role::kKNormWeight),
                                       gradients.accumulate, scratch);
      });
}

// From the gradient at x2 to that at the block's input, both in d_x.
absl::Status Transformer::AttentionBackward(const BlockBuffers& block, const ModelBatch& batch,
                                            const UnitView& weights,
                                            const GradientTarget& gradients) {
  const BlockTape& tape = block.backward;
  const bool in_out = model_.weights_in_out;
  const bool accumulate = gradients.accumulate;
  const std::span<std::byte> scratch = arena_.Bytes(block.sum_scratch);
  const AttentionShape shape = Attention(batch);
  const Matrix d_x = Act(plan_.d_x, batch, model_.dim);
  const Matrix attn = Act(tape.attn, batch, model_.q_dim());
  const Matrix d_attn = Act(block.d_attn, batch, model_.q_dim());
  RETURN_IF_ERROR(LinearWeightGrad(KernelFamily::kMatMulAttnOut, d_x, attn,
                                   gradients.view.Weight(Role::kAttnOutWeight), in_out,
                                   accumulate));
  RETURN_IF_ERROR(BiasGrad(d_x, gradients.view.Values(Role::kAttnOutBias), accumulate, scratch));
  RETURN_IF_ERROR(LinearInputGrad(KernelFamily::kMatMulAttnOut, d_x,
                                  weights.Weight(Role::kAttnOutWeight), in_out, d_attn));

  const Matrix qkv = Act(tape.qkv, batch, model_.qkv_dim());
  const Matrix d_qkv = Act(block.d_qkv, batch, model_.qkv_dim());
  const LaunchWork attend = AttentionWork(KernelFamily::kAttentionBackward, "attention.bwd", qkv,
                                          shape, 10.0, 2 * BytesOf(qkv) + 2 * BytesOf(attn));
  RETURN_IF_ERROR(Run(attend, [&] {
    return ops_.AttentionBackward(
        stream_, d_attn, qkv, attn, arena_.Stats(tape.lse, attn.rows * model_.num_heads), shape,
        batch.document_begins, Output(d_qkv), AttentionScratch(block.attention_scratch));
  }));
  RETURN_IF_ERROR(RotateHeadsBackward(tape, d_qkv, shape, weights, gradients, scratch));

  const Matrix d_normed = Act(block.d_normed1, batch, model_.dim);
  RETURN_IF_ERROR(LinearInputGrad(KernelFamily::kMatMulQkv, d_qkv, weights.Weight(Role::kQkvWeight),
                                  in_out, d_normed));
  const Matrix normed = Act(block.normed1, batch, model_.dim);
  const Matrix again = block.keep == KeepPolicy::kOutputs ? Matrix{} : normed;
  RETURN_IF_ERROR(NormBackward({Role::kNorm1Weight, Role::kNorm1Bias}, weights, gradients, d_normed,
                               Act(block.x, batch, model_.dim), d_x, d_x, again, tape.norm1_stats,
                               scratch));
  RETURN_IF_ERROR(LinearWeightGrad(KernelFamily::kMatMulQkv, d_qkv, normed,
                                   gradients.view.Weight(Role::kQkvWeight), in_out, accumulate));
  return BiasGrad(d_qkv, gradients.view.Values(Role::kQkvBias), accumulate, scratch);
}

absl::Status Transformer::BlockBackward(int layer, const ModelBatch& batch, const UnitView& weights,
                                        const GradientTarget& gradients) {
  const BlockBuffers& block = plan_.blocks[static_cast<std::size_t>(layer)];
  RETURN_IF_ERROR(RedoForward(block, batch, weights));
  RETURN_IF_ERROR(MlpBackward(block, batch, weights, gradients));
  return AttentionBackward(block, batch, weights, gradients);
}

absl::Status Transformer::EmbedBackward(const ModelBatch& batch, const GradientTarget& gradients) {
  const Matrix d_x = Act(plan_.d_x, batch, model_.dim);
  return Run(Work(KernelFamily::kEmbedding, "embedding.bwd", d_x,
                  static_cast<double>(d_x.rows * d_x.cols), 2 * BytesOf(d_x)),
             [&] {
               return ops_.EmbeddingBackward(stream_, batch.tokens, d_x,
                                             plan_.input.sequence_length, batch.position_ids,
                                             gradients.view.Weight(Role::kEmbedding),
                                             Positions(gradients.view), gradients.accumulate);
             });
}

}  // namespace fsdp

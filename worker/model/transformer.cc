#include "worker/model/transformer.h"

#include <algorithm>

#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::size_t kAlignBytes = 256;

double FlopsOf(const Matrix& out, std::int64_t inner) {
  return 2.0 * static_cast<double>(out.rows) * static_cast<double>(out.cols) *
         static_cast<double>(inner);
}

const char* ForwardNameOf(MlpKind kind) {
  switch (kind) {
    case MlpKind::kSwiGlu:
      return "swiglu";
    case MlpKind::kGelu:
      return "gelu";
    case MlpKind::kSilu:
      break;
  }
  return "silu";
}

}  // namespace

AttentionShape AttentionShapeOf(const PlanInput& input, std::int64_t sequences) {
  AttentionShape shape;
  shape.batch = sequences;
  shape.seq = input.sequence_length;
  shape.num_heads = input.model.num_heads;
  shape.num_kv_heads = input.model.num_kv_heads;
  shape.head_dim = input.model.head_dim;
  shape.causal = input.model.causal;
  shape.documents = input.reset_attention;
  return shape;
}

Transformer::Transformer(const ArenaView& arena, Device& device, FamilyRecorder& recorder)
    : arena_(arena),
      plan_(arena.plan()),
      model_(plan_.input.model),
      ops_(device.ops()),
      stream_(device.compute()),
      recorder_(recorder) {}

Matrix Transformer::Logits(std::int64_t rows) const {
  return arena_.Activation(plan_.head.logits, rows, model_.vocab_size);
}

Matrix Transformer::RowsOf(const Matrix& x, std::int64_t first, std::int64_t rows) {
  Matrix part = x;
  part.data = static_cast<std::byte*>(x.data) +
              first * x.stride * static_cast<std::int64_t>(SizeOf(x.dtype));
  part.rows = rows;
  return part;
}

Matrix Transformer::Output(const Matrix& y) const {
  if (redirect_.empty()) return y;
  return Matrix::Packed(redirect_.data(), y.dtype, y.rows, y.cols);
}

std::span<std::byte> Transformer::AttentionScratch(BufferId id) const {
  const std::span<std::byte> scratch = arena_.Bytes(id);
  if (redirect_.empty()) return scratch;
  const std::size_t at = (redirect_.size() - scratch.size()) / kAlignBytes * kAlignBytes;
  return redirect_.subspan(at, scratch.size());
}

std::int64_t Transformer::RedirectBytes() const {
  const std::int64_t tokens = plan_.micro_batch_tokens;
  const auto element = static_cast<std::int64_t>(SizeOf(plan_.input.parameter_dtype));
  const std::int64_t columns =
      std::max({model_.dim, model_.qkv_dim(), model_.mlp_in_dim(), model_.mlp_dim});
  std::int64_t largest =
      std::max(tokens * columns, plan_.head.chunk_tokens * model_.vocab_size) * element;
  for (const UnitPlan& unit : plan_.units) {
    largest = std::max(largest, unit.layout.unit_elements() *
                                    static_cast<std::int64_t>(SizeOf(plan_.gradient_dtype())));
  }
  const ScratchSizes& scratch = *plan_.input.scratch;
  const std::int64_t attention =
      std::max(scratch.attention_forward_bytes, scratch.attention_backward_bytes);
  return largest + attention + 2 * static_cast<std::int64_t>(kAlignBytes);
}

LaunchWork Transformer::MatMulWork(KernelFamily family, const char* operation, const Matrix& y,
                                   std::int64_t depth, double bytes) {
  return {family, operation, FlopsOf(y, depth), bytes, {y.rows, y.cols, depth}, y.dtype};
}

LaunchWork Transformer::AttentionWork(KernelFamily family, const char* operation, const Matrix& qkv,
                                      const AttentionShape& shape, double factor,
                                      double bytes) const {
  const double flops = factor * static_cast<double>(qkv.rows) * static_cast<double>(shape.seq) *
                       static_cast<double>(model_.q_dim()) * (model_.causal ? 0.5 : 1.0);
  return {family, operation, flops, bytes, {qkv.rows, shape.seq, model_.q_dim()}, qkv.dtype};
}

absl::Status Transformer::Linear(KernelFamily family, const Matrix& x, const Matrix& w, bool in_out,
                                 const Vector& bias, const Matrix& y) {
  const double bytes = BytesOf(x) + BytesOf(w) + BytesOf(y);
  return Run(MatMulWork(family, "matmul", y, x.cols, bytes), [&] {
    return ops_.MatMul(stream_, x, Transpose::kNo, w, in_out ? Transpose::kNo : Transpose::kYes,
                       bias, Output(y), /*accumulate=*/false);
  });
}

absl::Status Transformer::LinearInputGrad(KernelFamily family, const Matrix& dy, const Matrix& w,
                                          bool in_out, const Matrix& dx) {
  const double bytes = BytesOf(dy) + BytesOf(w) + BytesOf(dx);
  return Run(MatMulWork(family, "matmul.dx", dx, dy.cols, bytes), [&] {
    return ops_.MatMul(stream_, dy, Transpose::kNo, w, in_out ? Transpose::kYes : Transpose::kNo,
                       {}, Output(dx), /*accumulate=*/false);
  });
}

absl::Status Transformer::LinearWeightGrad(KernelFamily family, const Matrix& dy, const Matrix& x,
                                           const Matrix& dw, bool in_out, bool accumulate) {
  const double bytes = BytesOf(dy) + BytesOf(x) + BytesOf(dw) * (accumulate ? 2 : 1);
  return Run(MatMulWork(family, "matmul.dw", dw, dy.rows, bytes), [&] {
    return in_out ? ops_.MatMul(stream_, x, Transpose::kYes, dy, Transpose::kNo, {}, Output(dw),
                                accumulate)
                  : ops_.MatMul(stream_, dy, Transpose::kYes, x, Transpose::kNo, {}, Output(dw),
                                accumulate);
  });
}

absl::Status Transformer::BiasGrad(const Matrix& dy, const Vector& d_bias, bool accumulate,
                                   std::span<std::byte> scratch) {
  if (d_bias.empty()) return absl::OkStatus();
  return Run(Work(KernelFamily::kReduce, "column_sum", dy, static_cast<double>(dy.rows * dy.cols),
                  BytesOf(dy)),
             [&] { return ops_.ColumnSum(stream_, dy, d_bias, accumulate, scratch); });
}

absl::Status Transformer::Norm(const NormRoles& roles, const UnitView& weights, const Matrix& x,
                               const Matrix& delta, const Matrix& sum, const Matrix& y,
                               BufferId stats) {
  const double bytes =
      BytesOf(x) + BytesOf(y) + (delta.empty() ? 0 : BytesOf(delta) + BytesOf(sum));
  const char* const name = model_.norm == NormKind::kRms ? "rms_norm" : "layer_norm";
  const double flops = 5.0 * static_cast<double>(x.rows * x.cols);
  return Run(Work(KernelFamily::kNorm, name, x, flops, bytes), [&] {
    const Vector rstd = arena_.Stats(stats, x.rows);
    if (model_.norm == NormKind::kRms) {
      return ops_.RmsNormForward(stream_, x, delta, weights.Values(roles.weight), model_.norm_eps,
                                 sum, y, rstd);
    }
    return ops_.LayerNormForward(stream_, x, delta, weights.Values(roles.weight),
                                 weights.Values(roles.bias), model_.norm_eps, sum, y,
                                 arena_.Stats(stats, x.rows, x.rows), rstd);
  });
}

absl::Status Transformer::NormBackward(const NormRoles& roles, const UnitView& weights,
                                       const GradientTarget& gradients, const Matrix& dy,
                                       const Matrix& x, const Matrix& residual, const Matrix& dx,
                                       const Matrix& y, BufferId stats,
                                       std::span<std::byte> scratch) {
  const double bytes = BytesOf(dy) + BytesOf(x) + BytesOf(dx) + BytesOf(residual) + BytesOf(y);
  const char* const name = model_.norm == NormKind::kRms ? "rms_norm.bwd" : "layer_norm.bwd";
  const double flops = 11.0 * static_cast<double>(x.rows * x.cols);
  return Run(Work(KernelFamily::kNorm, name, x, flops, bytes), [&] {
    const Vector rstd = arena_.Stats(stats, x.rows);
    const Vector weight = weights.Values(roles.weight);
    const Vector d_weight = gradients.view.Values(roles.weight);
    if (model_.norm == NormKind::kRms) {
      return ops_.RmsNormBackward(stream_, dy, x, weight, rstd, residual, dx, y, d_weight,
                                  gradients.accumulate, scratch);
    }
    return ops_.LayerNormBackward(stream_, dy, x, weight, weights.Values(roles.bias),
                                  arena_.Stats(stats, x.rows, x.rows), rstd, residual, dx, y,
                                  d_weight, gradients.view.Values(roles.bias), gradients.accumulate,
                                  scratch);
  });
}

Matrix Transformer::Positions(const UnitView& view) const {
  const Matrix table = view.Weight(Role::kPositions);
  return table.empty() ? table : RowsOf(table, 0, plan_.input.sequence_length);
}

absl::Status Transformer::EmbedForward(const ModelBatch& batch, const UnitView& weights) {
  const Matrix x = Act(plan_.blocks[0].x, batch, model_.dim);
  const Matrix positions = Positions(weights);
  return Run(Work(KernelFamily::kEmbedding, "embedding", x, 0, 2 * BytesOf(x)), [&] {
    return ops_.EmbeddingForward(stream_, batch.tokens, weights.Weight(Role::kEmbedding), positions,
                                 plan_.input.sequence_length, batch.position_ids, x);
  });
}

Matrix Transformer::RopeTableOf(BufferId id) const {
  return Matrix::Packed(arena_.Address(id), plan_.stats_dtype(), plan_.input.sequence_length,
                        model_.head_dim / 2);
}

QkNormOperands Transformer::QkNorm(const BlockTape& tape, std::int64_t tokens,
                                   const UnitView& weights) const {
  const std::int64_t heads = model_.num_heads + model_.num_kv_heads;
  return {weights.Values(Role::kQNormWeight),
          weights.Values(Role::kKNormWeight),
          RopeTableOf(plan_.rope_cos),
          RopeTableOf(plan_.rope_sin),
          arena_.Activation(tape.qk_raw, tokens, heads * model_.head_dim),
          arena_.Stats(tape.qk_rstd, heads * tokens)};
}

absl::Status Transformer::RotateHeads(const BlockTape& tape, const Matrix& qkv,
                                      const AttentionShape& shape, const UnitView& weights) {
  if (model_.position != PositionKind::kRope) return absl::OkStatus();
  const auto elements = static_cast<double>(qkv.rows * qkv.cols);
  if (!model_.qk_norm) {
    return Run(Work(KernelFamily::kRope, "rope", qkv, 3 * elements, 2 * BytesOf(qkv)), [&] {
      return ops_.Rope(stream_, qkv, shape, RopeTableOf(plan_.rope_cos),
                       RopeTableOf(plan_.rope_sin), /*inverse=*/false);
    });
  }
  return Run(Work(KernelFamily::kRope, "qk_norm_rope", qkv, 8 * elements, 3 * BytesOf(qkv)), [&] {
    return ops_.QkNormRope(stream_, qkv, shape, model_.norm_eps, QkNorm(tape, qkv.rows, weights));
  });
}

absl::Status Transformer::AttentionHalf(const BlockTape& tape, const BlockBuffers::Work& work,
                                        const ModelBatch& batch, const UnitView& weights,
                                        const Matrix& x, const Matrix& delta, const Matrix& sum) {
  const AttentionShape shape = Attention(batch);
  const Matrix normed = Act(work.normed1, batch, model_.dim);
  const Matrix qkv = Act(tape.qkv, batch, model_.qkv_dim());
  const Matrix attn = Act(tape.attn, batch, model_.q_dim());
  RETURN_IF_ERROR(Norm({Role::kNorm1Weight, Role::kNorm1Bias}, weights, x, delta, sum, normed,
                       tape.norm1_stats));
  RETURN_IF_ERROR(Linear(KernelFamily::kMatMulQkv, normed, weights.Weight(Role::kQkvWeight),
                         model_.weights_in_out, weights.Values(Role::kQkvBias), qkv));
  RETURN_IF_ERROR(RotateHeads(tape, qkv, shape, weights));
  const LaunchWork attend = AttentionWork(KernelFamily::kAttentionForward, "attention.fwd", qkv,
                                          shape, 4.0, BytesOf(qkv) + BytesOf(attn));
  RETURN_IF_ERROR(Run(attend, [&] {
    return ops_.AttentionForward(stream_, qkv, shape, batch.document_begins, attn,
                                 arena_.Stats(tape.lse, attn.rows * model_.num_heads),
                                 AttentionScratch(work.scratch));
  }));
  return absl::OkStatus();
}

absl::Status Transformer::MlpIn(const Matrix& normed, const UnitView& weights, const Matrix& out) {
  return Linear(KernelFamily::kMatMulMlp, normed, weights.Weight(Role::kMlpInWeight),
                model_.weights_in_out, weights.Values(Role::kMlpInBias), out);
}

absl::Status Transformer::Activation(const Matrix& in, const Matrix& out) {
  return Run(Work(KernelFamily::kActivation, ForwardNameOf(model_.mlp), out,
                  8.0 * static_cast<double>(out.rows * out.cols), BytesOf(in) + BytesOf(out)),
             [&] {
               switch (model_.mlp) {
                 case MlpKind::kSwiGlu:
                   return ops_.SwiGluForward(stream_, in, out);
                 case MlpKind::kGelu:
                   return ops_.GeluForward(stream_, in, out);
                 case MlpKind::kSilu:
                   break;
               }
               return ops_.SiluForward(stream_, in, out);
             });
}

absl::Status Transformer::MlpInActivated(const Matrix& normed, const UnitView& weights,
                                         const Matrix& mlp_in, const Matrix& act) {
  if (model_.mlp != MlpKind::kGelu || !ops_.FusesMatMulGelu(normed.dtype)) {
    RETURN_IF_ERROR(MlpIn(normed, weights, mlp_in));
    return Activation(mlp_in, act);
  }
  const Matrix weight = weights.Weight(Role::kMlpInWeight);
  const double bytes = BytesOf(normed) + BytesOf(weight) + BytesOf(mlp_in) + BytesOf(act);
  return Run(MatMulWork(KernelFamily::kMatMulMlp, "matmul+gelu", mlp_in, normed.cols, bytes), [&] {
    return ops_.MatMulGelu(stream_, normed, weight,
                           model_.weights_in_out ? Transpose::kNo : Transpose::kYes,
                           weights.Values(Role::kMlpInBias), Output(mlp_in), Output(act));
  });
}

absl::Status Transformer::BlockForward(int layer, const ModelBatch& batch,
                                       const UnitView& weights) {
  const BlockBuffers& block = plan_.blocks[static_cast<std::size_t>(layer)];
  const BlockTape& tape = block.forward;
  const BlockBuffers::Work& work = block.forward_work;
  const std::int64_t d = model_.dim;
  const Matrix x = Act(block.x, batch, d);
  if (layer == 0) {
    RETURN_IF_ERROR(AttentionHalf(tape, work, batch, weights, x, {}, {}));
  } else {
    // The residual stream of the block before, completed on the way.
    const BlockBuffers& before = plan_.blocks[static_cast<std::size_t>(layer) - 1];
    RETURN_IF_ERROR(AttentionHalf(tape, work, batch, weights, Act(before.forward.x2, batch, d),
                                  Act(before.delta, batch, d), x));
  }
  const Matrix attn_out = Act(work.attn_out, batch, d);
  RETURN_IF_ERROR(Linear(KernelFamily::kMatMulAttnOut, Act(tape.attn, batch, model_.q_dim()),
                         weights.Weight(Role::kAttnOutWeight), model_.weights_in_out,
                         weights.Values(Role::kAttnOutBias), attn_out));
  const Matrix normed = Act(work.normed2, batch, d);
  RETURN_IF_ERROR(Norm({Role::kNorm2Weight, Role::kNorm2Bias}, weights, x, attn_out,
                       Act(tape.x2, batch, d), normed, tape.norm2_stats));
  const Matrix mlp_in = Act(tape.mlp_in, batch, model_.mlp_in_dim());
  const Matrix act = Act(work.act, batch, model_.mlp_dim);
  RETURN_IF_ERROR(MlpInActivated(normed, weights, mlp_in, act));
  return Linear(KernelFamily::kMatMulMlp, act, weights.Weight(Role::kMlpOutWeight),
                model_.weights_in_out, weights.Values(Role::kMlpOutBias),
                Act(block.delta, batch, d));
}

absl::Status Transformer::HeadNorm(const ModelBatch& batch, const UnitView& weights) {
  const BlockBuffers& last = plan_.blocks.back();
  const Matrix x2 = Act(last.forward.x2, batch, model_.dim);
  const Matrix delta = Act(last.delta, batch, model_.dim);
  const Matrix x = Act(plan_.head.x, batch, model_.dim);
  if (model_.final_norm) {
    return Norm({Role::kFinalNormWeight, Role::kFinalNormBias}, weights, x2, delta, x,
                Act(plan_.head.normed, batch, model_.dim), plan_.head.norm_stats);
  }
  return Run(
      Work(KernelFamily::kCopy, "add", x, static_cast<double>(x.rows * x.cols), 3 * BytesOf(x)),
      [&] { return ops_.Add(stream_, x2, delta, x); });
}

Matrix Transformer::HeadInput(const ModelBatch& batch) const {
  return Act(model_.final_norm ? plan_.head.normed : plan_.head.x, batch, model_.dim);
}

Matrix Transformer::HeadWeight(const UnitView& view) const {
  return view.Weight(model_.tie_embeddings ? Role::kEmbedding : Role::kHeadWeight);
}

absl::Status Transformer::ChunkLogits(const ModelBatch& batch, const UnitView& weights,
                                      std::int64_t first, std::int64_t rows) {
  return Linear(KernelFamily::kMatMulHead, RowsOf(HeadInput(batch), first, rows),
                HeadWeight(weights), /*in_out=*/false, {}, Logits(rows));
}

absl::Status Transformer::ChunkLoss(const ModelBatch& batch, std::int64_t first, std::int64_t rows,
                                    StepStats* stats, bool loss_only) {
  const Matrix logits = Logits(rows);
  const auto targets =
      batch.targets.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
  return Run(Work(KernelFamily::kLoss, loss_only ? "cross_entropy" : "cross_entropy+grad", logits,
                  5.0 * static_cast<double>(logits.rows * logits.cols),
                  BytesOf(logits) * (loss_only ? 1 : 2)),
             [&] {
               return ops_.CrossEntropy(stream_, logits, targets, stats, loss_only,
                                        arena_.Bytes(plan_.head.scratch));
             });
}

absl::Status Transformer::HeadLoss(const ModelBatch& batch, const UnitView& weights,
                                   StepStats* stats) {
  RETURN_IF_ERROR(HeadNorm(batch, weights));
  const std::int64_t tokens = Tokens(batch);
  for (std::int64_t at = 0; at < tokens; at += plan_.head.chunk_tokens) {
    const std::int64_t rows = std::min(plan_.head.chunk_tokens, tokens - at);
    RETURN_IF_ERROR(ChunkLogits(batch, weights, at, rows));
    RETURN_IF_ERROR(ChunkLoss(batch, at, rows, stats, /*loss_only=*/true));
  }
  return absl::OkStatus();
}

}  // namespace fsdp

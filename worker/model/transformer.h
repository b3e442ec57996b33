#ifndef FSDPCTL_WORKER_MODEL_TRANSFORMER_H_
#define FSDPCTL_WORKER_MODEL_TRANSFORMER_H_

// Forward and hand-written backward of every family, stage by stage, on planned buffers. It is
// handed each unit's weights while they are unsharded and writes each unit's gradients whole; it
// knows nothing of ranks.
//
// The order of operations inside a stage is that of plan_ticks.h: buffers share memory by it.
//
// Gradients are of the sum of losses over the valid tokens, not of their mean.
//
// Thread rule: the step thread; everything is put into the device's compute stream.

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/device/ops.h"
#include "worker/model/arena_view.h"
#include "worker/model/unit_view.h"
#include "worker/plan/plan.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

// One micro-batch in device memory; T = sequences x S, at least one sequence.
struct ModelBatch {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
  std::int64_t sequences = 0;
  // As Ops::AttentionForward's; empty unless the plan resets attention.
  std::span<const std::int32_t> document_begins = {};
  // As Ops::EmbeddingForward's; empty unless the plan resets learned positions.
  std::span<const std::int32_t> position_ids = {};
};

// Where a unit's gradients go. With `accumulate` they are added to what is there.
struct GradientTarget {
  UnitView view;
  bool accumulate = false;
};

AttentionShape AttentionShapeOf(const PlanInput& input, std::int64_t sequences);

class Transformer {
 public:
  // All outlive the transformer.
  Transformer(const ArenaView& arena, Device& device, FamilyRecorder& recorder);

  // Matmuls write here instead, and attention its gradients and scratch, until the next call with
  // an empty span: for replays that must not spoil their inputs.
  void RedirectOutputs(std::span<std::byte> memory) { redirect_ = memory; }
  // Bytes that it needs.
  [[nodiscard]] std::int64_t RedirectBytes() const;

  absl::Status EmbedForward(const ModelBatch& batch, const UnitView& weights);
  absl::Status BlockForward(int layer, const ModelBatch& batch, const UnitView& weights);
  // Loss only: stats->loss_sum and ->valid_tokens are added to.
  absl::Status HeadLoss(const ModelBatch& batch, const UnitView& weights, StepStats* stats);
  // Loss, gradients of the head's parameters, and the gradient of the residual stream.
  absl::Status HeadForwardBackward(const ModelBatch& batch, const UnitView& weights,
                                   const GradientTarget& gradients, StepStats* stats);
  absl::Status BlockBackward(int layer, const ModelBatch& batch, const UnitView& weights,
                             const GradientTarget& gradients);
  absl::Status EmbedBackward(const ModelBatch& batch, const GradientTarget& gradients);

  // The head's logits in chunks, after BlockForward of the last block: calls `take(first token,
  // logits[n, V])` for each; for tests.
  template <typename Take>
  absl::Status HeadLogits(const ModelBatch& batch, const UnitView& weights, Take&& take) {
    absl::Status status = HeadNorm(batch, weights);
    const std::int64_t chunk = arena_.plan().head.chunk_tokens;
    for (std::int64_t at = 0; status.ok() && at < Tokens(batch); at += chunk) {
      const std::int64_t rows = std::min(chunk, Tokens(batch) - at);
      status = ChunkLogits(batch, weights, at, rows);
      if (status.ok()) status = take(at, Logits(rows));
    }
    return status;
  }

 private:
  struct NormRoles {
    ParameterRole weight, bias;
  };
  using Role = ParameterRole;

  [[nodiscard]] std::int64_t Tokens(const ModelBatch& batch) const {
    return batch.sequences * plan_.input.sequence_length;
  }
  [[nodiscard]] AttentionShape Attention(const ModelBatch& batch) const {
    return AttentionShapeOf(plan_.input, batch.sequences);
  }
  [[nodiscard]] Matrix Act(BufferId id, const ModelBatch& batch, std::int64_t columns) const {
    return arena_.Activation(id, Tokens(batch), columns);
  }
  [[nodiscard]] Matrix Logits(std::int64_t rows) const;
  // The rows of the learned position table that this sequence length uses.
  [[nodiscard]] Matrix Positions(const UnitView& view) const;
  // Rows of `x` from `first` on.
  static Matrix RowsOf(const Matrix& x, std::int64_t first, std::int64_t rows);

  [[nodiscard]] Matrix Output(const Matrix& y) const;
  [[nodiscard]] std::span<std::byte> AttentionScratch(BufferId id) const;
  // `x`'s shape and type with the rest.
  static LaunchWork Work(KernelFamily family, const char* operation, const Matrix& x, double flops,
                         double bytes) {
    return {family, operation, flops, bytes, {x.rows, x.cols, 0}, x.dtype};
  }
  // y [rows, cols] = a product over `depth`.
  static LaunchWork MatMulWork(KernelFamily family, const char* operation, const Matrix& y,
                               std::int64_t depth, double bytes);
  // Attention of `tokens` rows of q, k and v; `factor` FLOPs per score and value.
  [[nodiscard]] LaunchWork AttentionWork(KernelFamily family, const char* operation,
                                         const Matrix& qkv, const AttentionShape& shape,
                                         double factor, double bytes) const;
  // One launch, credited to its family.
  template <typename Fn>
  absl::Status Run(const LaunchWork& work, Fn&& fn) {
    return Launch(recorder_, work, std::forward<Fn>(fn));
  }

  // y = x W (+ bias), W as stored ([out, in], or [in, out] with `in_out`).
  absl::Status Linear(KernelFamily family, const Matrix& x, const Matrix& w, bool in_out,
                      const Vector& bias, const Matrix& y);
  absl::Status LinearInputGrad(KernelFamily family, const Matrix& dy, const Matrix& w, bool in_out,
                               const Matrix& dx);
  absl::Status LinearWeightGrad(KernelFamily family, const Matrix& dy, const Matrix& x,
                                const Matrix& dw, bool in_out, bool accumulate);
  absl::Status BiasGrad(const Matrix& dy, const Vector& d_bias, bool accumulate,
                        std::span<std::byte> scratch);
  // y = norm(x + delta), the sum to `sum`; `stats` keeps what backward needs.
  absl::Status Norm(const NormRoles& roles, const UnitView& weights, const Matrix& x,
                    const Matrix& delta, const Matrix& sum, const Matrix& y, BufferId stats);
  // dx = residual + the gradient; `y`, where given, gets the norm's output again.
  absl::Status NormBackward(const NormRoles& roles, const UnitView& weights,
                            const GradientTarget& gradients, const Matrix& dy, const Matrix& x,
                            const Matrix& residual, const Matrix& dx, const Matrix& y,
                            BufferId stats, std::span<std::byte> scratch);

  // Norm 1, q k v and attention up to its output projection.
  absl::Status AttentionHalf(const BlockTape& tape, const BlockBuffers::Work& work,
                             const ModelBatch& batch, const UnitView& weights, const Matrix& x,
                             const Matrix& delta, const Matrix& sum);
  absl::Status MlpIn(const Matrix& normed, const UnitView& weights, const Matrix& out);
  absl::Status Activation(const Matrix& in, const Matrix& out);
  // Both, for a block's forward.
  absl::Status MlpInActivated(const Matrix& normed, const UnitView& weights, const Matrix& mlp_in,
                              const Matrix& act);
  // Also gives the activation's output again, in `out`.
  absl::Status ActivationBackward(const Matrix& d_out, const Matrix& in, const Matrix& d_in,
                                  const Matrix& out);
  // What lies between the projections and attention: rope, and before it the norm of q and k where
  // the model has one.
  absl::Status RotateHeads(const BlockTape& tape, const Matrix& qkv, const AttentionShape& shape,
                           const UnitView& weights);
  absl::Status RotateHeadsBackward(const BlockTape& tape, const Matrix& d_qkv,
                                   const AttentionShape& shape, const UnitView& weights,
                                   const GradientTarget& gradients, std::span<std::byte> scratch);
  [[nodiscard]] Matrix RopeTableOf(BufferId id) const;
  [[nodiscard]] QkNormOperands QkNorm(const BlockTape& tape, std::int64_t tokens,
                                      const UnitView& weights) const;

  // What the block's policy did not keep.
  absl::Status RedoForward(const BlockBuffers& block, const ModelBatch& batch,
                           const UnitView& weights);
  absl::Status MlpBackward(const BlockBuffers& block, const ModelBatch& batch,
                           const UnitView& weights, const GradientTarget& gradients);
  absl::Status AttentionBackward(const BlockBuffers& block, const ModelBatch& batch,
                                 const UnitView& weights, const GradientTarget& gradients);

  absl::Status HeadNorm(const ModelBatch& batch, const UnitView& weights);
  [[nodiscard]] Matrix HeadInput(const ModelBatch& batch) const;
  [[nodiscard]] Matrix HeadWeight(const UnitView& view) const;
  absl::Status ChunkLogits(const ModelBatch& batch, const UnitView& weights, std::int64_t first,
                           std::int64_t rows);
  absl::Status ChunkLoss(const ModelBatch& batch, std::int64_t first, std::int64_t rows,
                         StepStats* stats, bool loss_only);

  ArenaView arena_;
  const Plan& plan_;
  const ModelConfig& model_;
  Ops& ops_;
  Stream& stream_;
  FamilyRecorder& recorder_;
  std::span<std::byte> redirect_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_MODEL_TRANSFORMER_H_

#ifndef FSDPCTL_WORKER_DEVICE_OPS_H_
#define FSDPCTL_WORKER_DEVICE_OPS_H_

// The mathematics of one training step as operations on device memory. Two implementations (cpu,
// cuda) pass the same contract suite (tests/contract/device_ops_contract_test.cc); the CPU one in
// fp64 is the truth that both are compared with.
//
// Rules that hold for every operation:
// - It is put into `stream` and may return before it ran; operands must live until it has.
// - Shapes use T tokens (batch x sequence, sequence fastest), D model dim, F MLP dim, V vocabulary,
//   Hq/Hkv query/key-value heads, Dh head dim, B sequences, S sequence length.
// - All matrices of one call share one dtype (f32, bf16 or, on the CPU, f64) unless the operation
// says
//   otherwise. Sums and statistics are formed in f32 (f64 when the operands are f64).
// - `accumulate` = false overwrites the output, true adds to it.
// - Same inputs give the same bits on every call (no atomics whose order matters).
// - No allocation: scratch comes from `scratch`, sized by the matching ...ScratchBytes.
// - T = 0 is legal everywhere: nothing is read, accumulating outputs stay, overwritten sums become
// 0.
// - Errors: INVALID_ARGUMENT for shapes, dtypes or strides that do not fit (message names operand
// and
//   values); INTERNAL for a failure inside a library, with its call text.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/device/device.h"
#include "worker/device/initial_values.h"
#include "worker/device/tensor.h"

namespace fsdp {

enum class Transpose : bool { kNo, kYes };

// Head geometry of packed projections: a row of `qkv` is Hq query heads, Hkv key heads, Hkv value
// heads, each Dh elements.
struct AttentionShape {
  std::int64_t batch = 0;     // B
  std::int64_t seq = 0;       // S
  int num_heads = 0;          // Hq
  int num_kv_heads = 0;       // Hkv, divides Hq
  std::int64_t head_dim = 0;  // Dh
  bool causal = true;
  float scale = 0;  // of the scores; 0 = 1/sqrt(Dh)
  // A sequence is packed from documents, and a query sees keys of its own only: the calls are given
  // where each begins. Needs `causal`.
  bool documents = false;
};

// Which implementation serves a shape: "cudnn 9.19.0 engine 5", "own tensor-core", "own fp32". For
// people; nothing is decided by it.
struct AttentionKernels {
  std::string forward, backward;
};

// Device scalars of a step, all-reduced (SUM) over ranks as four f64.
struct StepStats {
  double loss_sum;      // sum over valid tokens of -log p(target), natural log
  double valid_tokens;  // targets that are not kIgnoreTarget
  double grad_norm_sq;  // of the unnormalised gradient sum (divide by valid_tokens^2)
  double nonfinite;     // > 0 if any gradient element was NaN or Inf
};
inline constexpr std::int32_t kIgnoreTarget = -100;

// Written by FinishStats, read by AdamW on the device; the host reads it one step late.
struct UpdateScalars {
  float grad_scale;  // 1/valid_tokens x clip factor: multiplies every summed gradient element
  float skip;  // 1 = leave parameters and moments alone: no valid token, a loss or gradient that
               // is not finite, or one above the step's bounds
  float grad_norm;  // of the normalised gradient, before clipping
  float loss;       // mean over valid tokens; 0 when there are none
};

// What stays the same from step to step.
struct AdamWOptions {
  float beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F;
};

// Above these a step's loss or gradient norm is a spike, and its update is left out.
struct StepBounds {
  double loss = std::numeric_limits<double>::infinity();
  double grad_norm = std::numeric_limits<double>::infinity();  // before clipping
};

// What FinishStats and AdamW need to know of the step. It is read from device memory, so that a
// captured graph runs any step: the host fills one with StepScalarsOf and uploads it.
struct StepScalars {
  double lr;
  double step_size;                 // lr / (1 - beta1^step)
  double inverse_sqrt_correction2;  // 1 / sqrt(1 - beta2^step)
  StepBounds bounds;
};

// `step` counts from 1.
//   INVALID_ARGUMENT  step < 1
inline absl::StatusOr<StepScalars> StepScalarsOf(double lr, std::int64_t step,
                                                 const AdamWOptions& options) {
  if (step < 1) {
    return absl::InvalidArgumentError(absl::StrCat("step is ", step, ", must be at least 1"));
  }
  const auto count = static_cast<double>(step);
  return StepScalars{lr,
                     lr / (1 - std::pow(static_cast<double>(options.beta1), count)),
                     1 / std::sqrt(1 - std::pow(static_cast<double>(options.beta2), count)),
                     {}};
}

// A run of a shard with one weight decay.
struct DecaySegment {
  std::int64_t begin = 0, end = 0;  // elements of the shard
  float weight_decay = 0;
};

// What the norm of q and k works on besides qkv; per head h of q and then of k.
struct QkNormOperands {
  Vector q_weight, k_weight;  // [Dh], qkv's dtype
  Matrix cos, sin;            // as Rope's
  Matrix raw;                 // [T, (Hq+Hkv)Dh] q and k as they were
  Vector rstd;                // [Hq+Hkv, T] f32 (f64): 1/sqrt(mean(head^2) + eps)
};

class Ops {
 public:
  virtual ~Ops() = default;

  // out[M,N] (+)= op(a)[M,K] op(b)[K,N] + bias[N]. f32 accumulation. `out` may be f32 while a and b
  // are bf16. `bias` may be empty; it has a's dtype. K = 0 gives zeros (or leaves out when
  // accumulating).
  virtual absl::Status MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                              Transpose trans_b, const Vector& bias, const Matrix& out,
                              bool accumulate) = 0;
  // out[M,N] = gelu(pre), pre[M,N] = a[M,K] op(b)[K,N] + bias[N] (may be empty): MatMul, then
  // GeluForward, of which an implementation may make one kernel that rounds `pre` only to store it.
  // All of one dtype.
  virtual absl::Status MatMulGelu(Stream& stream, const Matrix& a, const Matrix& b,
                                  Transpose trans_b, const Vector& bias, const Matrix& pre,
                                  const Matrix& out);
  // Whether it is one kernel, for packed operands of `dtype` whose rows are multiples of 16 bytes.
  [[nodiscard]] virtual bool FusesMatMulGelu(DType) const { return false; }

  // out[T,D] = table[token, :] (+ positions[position, :] when `positions` is not empty). A token's
  // position is t % seq, or position_ids[t], which is device memory and in [0, seq), when these are
  // not empty. Token ids must be in [0, V): the data layer has checked them.
  virtual absl::Status EmbeddingForward(Stream& stream, std::span<const std::int32_t> tokens,
                                        const Matrix& table, const Matrix& positions,
                                        std::int64_t seq,
                                        std::span<const std::int32_t> position_ids,
                                        const Matrix& out) = 0;
  // d_table[V,D] (f32 or dout's dtype) += dout[T,D] by token; d_positions[S,D] likewise by position
  // when not empty. Deterministic: rows of one token are added in order of t.
  virtual absl::Status EmbeddingBackward(Stream& stream, std::span<const std::int32_t> tokens,
                                         const Matrix& dout, std::int64_t seq,
                                         std::span<const std::int32_t> position_ids,
                                         const Matrix& d_table, const Matrix& d_positions,
                                         bool accumulate) = 0;

  // sum = x + delta (when delta is not empty; `sum` may alias x; empty delta: sum is x, not
  // written); y = sum * rstd * weight, rstd[T] f32 (f64 for f64 operands) = 1/sqrt(mean(sum^2) +
  // eps).
  virtual absl::Status RmsNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                      const Vector& weight, double eps, const Matrix& sum,
                                      const Matrix& y, const Vector& rstd) = 0;
  // dx[T,D] = gradient of the above with respect to sum (+ residual[T,D] when not empty; dx may
  // alias residual or dy); d_weight[D] (f32 or x's dtype) (+)=. When `y`[T,D] is not empty it gets
  // the forward's output again, to the same bits, so that it need not be kept: y may alias dy, and
  // dx then may not.
  virtual absl::Status RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                       const Vector& weight, const Vector& rstd,
                                       const Matrix& residual, const Matrix& dx, const Matrix& y,
                                       const Vector& d_weight, bool accumulate,
                                       std::span<std::byte> scratch) = 0;
  virtual std::size_t NormBackwardScratchBytes(std::int64_t tokens, std::int64_t dim) const = 0;
  // As RmsNorm with mean subtracted and a bias added; mean[T] and rstd[T] are kept.
  virtual absl::Status LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                        const Vector& weight, const Vector& bias, double eps,
                                        const Matrix& sum, const Matrix& y, const Vector& mean,
                                        const Vector& rstd) = 0;
  // `bias` is read for `y` only and may be empty when that is.
  virtual absl::Status LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                         const Vector& weight, const Vector& bias,
                                         const Vector& mean, const Vector& rstd,
                                         const Matrix& residual, const Matrix& dx, const Matrix& y,
                                         const Vector& d_weight, const Vector& d_bias,
                                         bool accumulate, std::span<std::byte> scratch) = 0;

  // Rotates the query and key heads of qkv[T, (Hq+2Hkv)Dh] in place by position t % S: pairs are
  // (i, i + Dh/2) as in Hugging Face's llama. cos, sin: [S, Dh/2] f32 (f64 for f64 operands).
  // `inverse` rotates back (the backward pass).
  virtual absl::Status Rope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                            const Matrix& cos, const Matrix& sin, bool inverse) = 0;

  // RMSNorm of every query and key head of qkv over its Dh elements, then Rope, in place; keeps q
  // and k as they were in `raw` and writes `rstd`.
  virtual absl::Status QkNormRope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                                  double eps, const QkNormOperands& operands) = 0;
  // d_qkv[T, (Hq+2Hkv)Dh]: the gradients of q and k after the above become those before it.
  // d_q_weight, d_k_weight [Dh] (both f32 or both qkv's dtype) (+)=.
  virtual absl::Status QkNormRopeBackward(Stream& stream, const Matrix& d_qkv,
                                          const AttentionShape& shape,
                                          const QkNormOperands& operands, const Vector& d_q_weight,
                                          const Vector& d_k_weight, bool accumulate,
                                          std::span<std::byte> scratch) = 0;
  virtual std::size_t QkNormBackwardScratchBytes(std::int64_t tokens,
                                                 std::int64_t head_dim) const = 0;

  // out[T, Hq Dh] = softmax(scale q k^T, masked) v per head; lse[B,Hq,S] f32 (f64) = log-sum-exp of
  // the scaled scores, kept for backward. With `causal`, logits of a position are bit-equal
  // whatever later tokens hold, and with `documents` whatever finite values other documents hold.
  // `document_begins`[T] is device memory, read when the operation runs (a captured graph reads
  // what is there then): of each token the index within its sequence at which its document begins,
  // so that query i sees keys document_begins[i] <= j <= i. In a sequence it is 0 at first, and
  // then that of the token before or, where a document begins, the token's own index; other values
  // are the caller's mistake and are not looked for. Empty without `documents`.
  virtual absl::Status AttentionForward(Stream& stream, const Matrix& qkv,
                                        const AttentionShape& shape,
                                        std::span<const std::int32_t> document_begins,
                                        const Matrix& out, const Vector& lse,
                                        std::span<std::byte> scratch) = 0;
  // d_qkv[T, (Hq+2Hkv)Dh] from d_out[T, Hq Dh]; overwrites.
  virtual absl::Status AttentionBackward(Stream& stream, const Matrix& d_out, const Matrix& qkv,
                                         const Matrix& out, const Vector& lse,
                                         const AttentionShape& shape,
                                         std::span<const std::int32_t> document_begins,
                                         const Matrix& d_qkv, std::span<std::byte> scratch) = 0;
  virtual std::size_t AttentionScratchBytes(const AttentionShape& shape, DType dtype,
                                            bool backward) const = 0;
  // What the two calls above run for packed operands of this shape and `dtype`. The choice is made
  // here if no call has made it yet, and then kept.
  //   INTERNAL       the library that was asked failed, as the calls will
  //   UNIMPLEMENTED  one library is demanded and takes no such shape
  virtual absl::StatusOr<AttentionKernels> ChosenAttention(const AttentionShape& shape,
                                                           DType dtype) const = 0;

  // h[T,F] = silu(gate) * up where gate_up[T,2F] = [gate | up].
  virtual absl::Status SwiGluForward(Stream& stream, const Matrix& gate_up, const Matrix& h) = 0;
  // d_gate_up[T,2F] from dh[T,F]; d_gate_up may alias gate_up. When `h`[T,F] is not empty it gets
  // the forward's output again, to the same bits; h may alias dh.
  virtual absl::Status SwiGluBackward(Stream& stream, const Matrix& dh, const Matrix& gate_up,
                                      const Matrix& d_gate_up, const Matrix& h) = 0;
  virtual absl::Status SiluForward(Stream& stream, const Matrix& x, const Matrix& y) = 0;
  // dx may alias dy. When `y` is not empty it gets the forward's output again, to the same bits; y
  // may alias x.
  virtual absl::Status SiluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                    const Matrix& dx, const Matrix& y) = 0;
  // The tanh form (GPT-2's gelu_new).
  virtual absl::Status GeluForward(Stream& stream, const Matrix& x, const Matrix& y) = 0;
  virtual absl::Status GeluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                    const Matrix& dx, const Matrix& y) = 0;

  // out[N] (+)= sum over rows of x[T,N]; out f32 or x's dtype (bias gradients).
  virtual absl::Status ColumnSum(Stream& stream, const Matrix& x, const Vector& out,
                                 bool accumulate, std::span<std::byte> scratch) = 0;
  virtual std::size_t ColumnSumScratchBytes(std::int64_t rows, std::int64_t cols) const = 0;
  // y = a + b, elementwise; y may alias either.
  virtual absl::Status Add(Stream& stream, const Matrix& a, const Matrix& b, const Matrix& y) = 0;

  // logits[T,V] become d(sum of losses)/d(logits) in place (not divided by the token count);
  // ignored rows become 0. stats->loss_sum and ->valid_tokens are added to. With `loss_only` logits
  // are left alone.
  virtual absl::Status CrossEntropy(Stream& stream, const Matrix& logits,
                                    std::span<const std::int32_t> targets, StepStats* stats,
                                    bool loss_only, std::span<std::byte> scratch) = 0;
  virtual std::size_t CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t vocab) const = 0;

  // out[i] = element first + i of the draw (worker/device/initial_values.h); f32 or f64, first >=
  // 0.
  virtual absl::Status FillInitial(Stream& stream, const InitialDraw& draw, std::int64_t first,
                                   const Vector& out) = 0;

  // to += from, both of `size` elements; `to` f32 (or f64), `from` any of f32, bf16, f64.
  virtual absl::Status Accumulate(Stream& stream, const Vector& from, const Vector& to) = 0;
  // to = from with rounding to nearest even where it narrows.
  virtual absl::Status Cast(Stream& stream, const Vector& from, const Vector& to) = 0;

  // stats->grad_norm_sq += sum of squares, stats->nonfinite += 1 if any element is not finite.
  virtual absl::Status GradStats(Stream& stream, const Vector& grad, StepStats* stats,
                                 std::span<std::byte> scratch) = 0;
  virtual std::size_t GradStatsScratchBytes(std::int64_t size) const = 0;
  // scalars from the all-reduced stats. The clip factor is min(1, max_norm / (grad_norm + 1e-6)),
  // as torch's; max_norm <= 0: no clipping. `step` and `scalars` are device memory.
  virtual absl::Status FinishStats(Stream& stream, const StepStats* stats, float max_norm,
                                   const StepScalars* step, UpdateScalars* scalars) = 0;

  // One AdamW update of a shard (decoupled decay, as torch.optim.AdamW): master, m, v, grad are f32
  // (or all f64) of equal size. Elements outside every segment are padding and are left alone.
  // `segments` is host memory, `step` and `scalars` are device memory.
  virtual absl::Status AdamW(Stream& stream, const Vector& master, const Vector& m, const Vector& v,
                             const Vector& grad, std::span<const DecaySegment> segments,
                             const AdamWOptions& options, const StepScalars* step,
                             const UpdateScalars* scalars) = 0;
  // The same with the master kept as `compute` (bf16, the rounded weight) plus `remainder` (u16):
  // exactly the f32 value, 16 bytes a parameter with m, v and grad. master f32 bits = (bf16 bits <<
  // 16) + the remainder taken as signed 16-bit.
  virtual absl::Status AdamWSplit(Stream& stream, const Vector& compute, const Vector& remainder,
                                  const Vector& m, const Vector& v, const Vector& grad,
                                  std::span<const DecaySegment> segments,
                                  const AdamWOptions& options, const StepScalars* step,
                                  const UpdateScalars* scalars) = 0;
  // f32 <-> (bf16, u16 remainder), exact both ways for finite values. The bf16 is the nearest one,
  // halfway cases away from zero (to even would need a remainder of +32768).
  virtual absl::Status SplitMaster(Stream& stream, const Vector& master, const Vector& compute,
                                   const Vector& remainder) = 0;
  virtual absl::Status JoinMaster(Stream& stream, const Vector& compute, const Vector& remainder,
                                  const Vector& master) = 0;
};

inline absl::Status Ops::MatMulGelu(Stream& stream, const Matrix& a, const Matrix& b,
                                    Transpose trans_b, const Vector& bias, const Matrix& pre,
                                    const Matrix& out) {
  RETURN_IF_ERROR(MatMul(stream, a, Transpose::kNo, b, trans_b, bias, pre, /*accumulate=*/false));
  return GeluForward(stream, pre, out);
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_OPS_H_

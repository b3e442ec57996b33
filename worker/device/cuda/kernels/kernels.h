#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_

// Launchers of our own kernels: validated operands in, one or a few launches put into `stream`, the
// launch's error out. No allocation, no host synchronisation. Every launcher takes f32 and bf16
// (others are the caller's mistake) and any size, stride and element alignment; wide accesses are
// used where the addresses allow them. Sums run in a fixed order: same inputs, same bits.
//
// No Abseil in here: nvcc reads this header.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "worker/device/tensor.h"

namespace fsdp {

struct InitialDraw;
struct StepScalars;
struct StepStats;
struct UpdateScalars;

namespace kernels {

// ---- elementwise ----------------------------------------------------------------------------
enum class Activation : std::uint8_t { kSilu, kGelu };
cudaError_t ActivationForward(cudaStream_t stream, Activation kind, const Matrix& x,
                              const Matrix& y);
// `y`, as `h` below, may be empty.
cudaError_t ActivationBackward(cudaStream_t stream, Activation kind, const Matrix& dy,
                               const Matrix& x, const Matrix& dx, const Matrix& y);
cudaError_t SwiGluForward(cudaStream_t stream, const Matrix& gate_up, const Matrix& h);
cudaError_t SwiGluBackward(cudaStream_t stream, const Matrix& dh, const Matrix& gate_up,
                           const Matrix& d_gate_up, const Matrix& h);
cudaError_t Add(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& y);
// out[r, :] += bias[:]
cudaError_t AddBias(cudaStream_t stream, const Vector& bias, const Matrix& out);
cudaError_t Accumulate(cudaStream_t stream, const Vector& from, const Vector& to);
cudaError_t Cast(cudaStream_t stream, const Vector& from, const Vector& to);
// Rotates the first `num_heads` heads of each row; position = row % seq.
cudaError_t Rope(cudaStream_t stream, const Matrix& qkv, int num_heads, std::int64_t head_dim,
                 std::int64_t seq, const Matrix& cos, const Matrix& sin, bool inverse);

// ---- norm of query and key heads ------------------------------------------------------------
struct QkNormArgs {
  Matrix qkv;  // or its gradient
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t seq = 0;
  float eps = 0;
  Vector q_weight, k_weight, rstd;
  Matrix cos, sin, raw;
  Vector d_q_weight, d_k_weight;  // backward only, as are the rest
  bool accumulate = false;
  float* scratch = nullptr;  // QkNormScratchFloats
};
// As Ops::QkNormRope; head_dim even and at most kMaxQkNormDim.
inline constexpr int kMaxQkNormDim = 256;
cudaError_t QkNormRope(cudaStream_t stream, const QkNormArgs& args);
cudaError_t QkNormRopeBackward(cudaStream_t stream, const QkNormArgs& args);
std::size_t QkNormScratchFloats(std::int64_t tokens, std::int64_t head_dim);

// ---- norms ----------------------------------------------------------------------------------
// `layer`: LayerNorm, else RMSNorm, which has no mean and bias. `delta` (with `sum`), `residual`
// and the backward's `y` (with `bias`) may be empty.
struct NormForwardArgs {
  bool layer = false;
  Matrix x, delta, sum, y;
  Vector weight, bias, mean, rstd;
  float eps = 0;
};
cudaError_t NormForward(cudaStream_t stream, const NormForwardArgs& args);
struct NormBackwardArgs {
  bool layer = false;
  Matrix dy, x, residual, dx, y;
  Vector weight, bias, mean, rstd, d_weight, d_bias;
  bool accumulate = false;
  float* scratch = nullptr;  // NormBackwardScratchFloats
};
cudaError_t NormBackward(cudaStream_t stream, const NormBackwardArgs& args);
std::size_t NormBackwardScratchFloats(std::int64_t rows, std::int64_t cols);

// ---- reductions -----------------------------------------------------------------------------
cudaError_t ColumnSum(cudaStream_t stream, const Matrix& x, const Vector& out, bool accumulate,
                      float* scratch);
std::size_t ColumnSumScratchFloats(std::int64_t rows, std::int64_t cols);
// out[c] (+)= sum over r of partial[r, c], in a fixed order; and, unless null, the same of a second
// pair with out's dtype and size.
cudaError_t SumPartials(cudaStream_t stream, const float* partial, std::int64_t rows,
                        const Vector& out, bool accumulate, const float* second_partial,
                        const Vector& second_out);

// ---- embedding ------------------------------------------------------------------------------
// Positions: those of `position_ids`, or, where that is null, t % seq.
cudaError_t EmbeddingForward(cudaStream_t stream, const std::int32_t* tokens, const Matrix& table,
                             const Matrix& positions, std::int64_t seq,
                             const std::int32_t* position_ids, const Matrix& out);
cudaError_t EmbeddingBackward(cudaStream_t stream, const std::int32_t* tokens, const Matrix& dout,
                              const Matrix& d_table, bool accumulate);
cudaError_t PositionBackward(cudaStream_t stream, const Matrix& dout, std::int64_t seq,
                             const Matrix& d_positions, bool accumulate);

// ---- loss -----------------------------------------------------------------------------------
// scratch: one double per row.
cudaError_t CrossEntropy(cudaStream_t stream, const Matrix& logits, const std::int32_t* targets,
                         StepStats* stats, bool loss_only, double* scratch);

// ---- optimizer ------------------------------------------------------------------------------
// scratch: two doubles per GradStatsBlocks.
cudaError_t GradStats(cudaStream_t stream, const Vector& grad, StepStats* stats, double* scratch);
std::int64_t GradStatsBlocks(std::int64_t size);
cudaError_t FinishStats(cudaStream_t stream, const StepStats* stats, float max_norm,
                        const StepScalars* step, UpdateScalars* scalars);
struct AdamWArgs {
  Vector master;              // f32, or in its place:
  Vector compute, remainder;  // bf16 and u16
  Vector m, v, grad;
  float beta1 = 0, beta2 = 0, eps = 0;
};
// One update of elements [begin, end) of each of up to kMaxDecayRuns runs; runs ascend.
inline constexpr int kMaxDecayRuns = 64;
struct DecayRuns {
  std::int64_t begin[kMaxDecayRuns];
  std::int64_t end[kMaxDecayRuns];
  float weight_decay[kMaxDecayRuns];
  int count = 0;
};
cudaError_t AdamW(cudaStream_t stream, const AdamWArgs& args, const DecayRuns& runs,
                  const StepScalars* step, const UpdateScalars* scalars);
cudaError_t SplitMaster(cudaStream_t stream, const Vector& master, const Vector& compute,
                        const Vector& remainder);
cudaError_t JoinMaster(cudaStream_t stream, const Vector& compute, const Vector& remainder,
                       const Vector& master);

// ---- initial weights ------------------------------------------------------------------------
// `out` is f32 or f64.
cudaError_t FillInitial(cudaStream_t stream, const InitialDraw& draw, std::int64_t first,
                        const Vector& out);

// ---- attention ------------------------------------------------------------------------------
// Strided views of the packed projections; strides are elements between tokens. Head h of token t
// of tensor x starts at x + t * stride + h * head_dim.
struct AttentionArgs {
  DType dtype = DType::kF32;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;    // forward writes it, backward reads it
  float* lse = nullptr;         // [B, Hq, S]
  const void* d_out = nullptr;  // backward only, as are the rest
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* delta = nullptr;  // [B, Hq, S] scratch
  std::int64_t batch = 0, seq = 0;
  int num_heads = 0, num_kv_heads = 0;
  int head_dim = 0;
  std::int64_t qkv_stride = 0, out_stride = 0, d_out_stride = 0, d_qkv_stride = 0;
  float scale = 0;
  bool causal = false;
  // [B, S], not falling within a sequence: query i sees keys from begins[i] on. Null: from 0 on.
  // Needs `causal`.
  const std::int32_t* begins = nullptr;
};
// f32 arithmetic throughout, any head_dim up to 256.
cudaError_t AttentionForward(cudaStream_t stream, const AttentionArgs& args);
cudaError_t AttentionBackward(cudaStream_t stream, const AttentionArgs& args);
// delta = rowsum(d_out * out), the first part of every backward.
cudaError_t AttentionDelta(cudaStream_t stream, const AttentionArgs& args);
// bf16 on the tensor cores; head_dim a multiple of 8 up to 128, 16-byte aligned rows, scale > 0.
bool FlashAttentionTakes(const AttentionArgs& args);
cudaError_t FlashAttentionForward(cudaStream_t stream, const AttentionArgs& args);
cudaError_t FlashAttentionBackward(cudaStream_t stream, const AttentionArgs& args);

}  // namespace kernels
}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_

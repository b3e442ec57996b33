#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_IMPL_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_IMPL_H_

// The operations' class. cuda_ops.cc has the products (matmul, attention) and RoPE,
// cuda_ops_rows.cc what works on rows (embedding, norms, activations, sums), cuda_ops_training.cc
// loss, casts and the update.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cuda/attention.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/matmul.h"
#include "worker/device/op_checks.h"
#include "worker/device/ops.h"

namespace fsdp {

class CudaOps final : public Ops {
 public:
  CudaOps(std::unique_ptr<MatMulPlanner> matmuls, std::unique_ptr<CudaAttention> attention)
      : matmuls_(std::move(matmuls)), attention_(std::move(attention)) {}

  absl::Status MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                      Transpose trans_b, const Vector& bias, const Matrix& out,
                      bool accumulate) override;
  absl::Status MatMulGelu(Stream& stream, const Matrix& a, const Matrix& b, Transpose trans_b,
                          const Vector& bias, const Matrix& pre, const Matrix& out) override;
  [[nodiscard]] bool FusesMatMulGelu(DType dtype) const override { return dtype == DType::kBf16; }
  absl::Status EmbeddingForward(Stream& stream, std::span<const std::int32_t> tokens,
                                const Matrix& table, const Matrix& positions, std::int64_t seq,
                                std::span<const std::int32_t> position_ids,
                                const Matrix& out) override;
  absl::Status EmbeddingBackward(Stream& stream, std::span<const std::int32_t> tokens,
                                 const Matrix& dout, std::int64_t seq,
                                 std::span<const std::int32_t> position_ids, const Matrix& d_table,
                                 const Matrix& d_positions, bool accumulate) override;
  absl::Status RmsNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                              const Vector& weight, double eps, const Matrix& sum, const Matrix& y,
                              const Vector& rstd) override;
  absl::Status LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                const Vector& weight, const Vector& bias, double eps,
                                const Matrix& sum, const Matrix& y, const Vector& mean,
                                const Vector& rstd) override;
  absl::Status RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                               const Vector& weight, const Vector& rstd, const Matrix& residual,
                               const Matrix& dx, const Matrix& y, const Vector& d_weight,
                               bool accumulate, std::span<std::byte> scratch) override;
  absl::Status LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                 const Vector& weight, const Vector& bias, const Vector& mean,
                                 const Vector& rstd, const Matrix& residual, const Matrix& dx,
                                 const Matrix& y, const Vector& d_weight, const Vector& d_bias,
                                 bool accumulate, std::span<std::byte> scratch) override;
  std::size_t NormBackwardScratchBytes(std::int64_t tokens, std::int64_t dim) const override;
  absl::Status Rope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                    const Matrix& cos, const Matrix& sin, bool inverse) override;
  absl::Status QkNormRope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                          double eps, const QkNormOperands& operands) override;
  absl::Status QkNormRopeBackward(Stream& stream, const Matrix& d_qkv, const AttentionShape& shape,
                                  const QkNormOperands& operands, const Vector& d_q_weight,
                                  const Vector& d_k_weight, bool accumulate,
                                  std::span<std::byte> scratch) override;
  std::size_t QkNormBackwardScratchBytes(std::int64_t tokens, std::int64_t head_dim) const override;
  absl::Status AttentionForward(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                                std::span<const std::int32_t> document_begins, const Matrix& out,
                                const Vector& lse, std::span<std::byte> scratch) override;
  absl::Status AttentionBackward(Stream& stream, const Matrix& d_out, const Matrix& qkv,
                                 const Matrix& out, const Vector& lse, const AttentionShape& shape,
                                 std::span<const std::int32_t> document_begins, const Matrix& d_qkv,
                                 std::span<std::byte> scratch) override;
  std::size_t AttentionScratchBytes(const AttentionShape& shape, DType dtype,
                                    bool backward) const override;
  absl::StatusOr<AttentionKernels> ChosenAttention(const AttentionShape& shape,
                                                   DType dtype) const override;
  absl::Status SwiGluForward(Stream& stream, const Matrix& gate_up, const Matrix& h) override;
  absl::Status SwiGluBackward(Stream& stream, const Matrix& dh, const Matrix& gate_up,
                              const Matrix& d_gate_up, const Matrix& h) override;
  absl::Status SiluForward(Stream& stream, const Matrix& x, const Matrix& y) override;
  absl::Status SiluBackward(Stream& stream, const Matrix& dy, const Matrix& x, const Matrix& dx,
                            const Matrix& y) override;
  absl::Status GeluForward(Stream& stream, const Matrix& x, const Matrix& y) override;
  absl::Status GeluBackward(Stream& stream, const Matrix& dy, const Matrix& x, const Matrix& dx,
                            const Matrix& y) override;
  absl::Status ColumnSum(Stream& stream, const Matrix& x, const Vector& out, bool accumulate,
                         std::span<std::byte> scratch) override;
  std::size_t ColumnSumScratchBytes(std::int64_t rows, std::int64_t cols) const override;
  absl::Status Add(Stream& stream, const Matrix& a, const Matrix& b, const Matrix& y) override;
  absl::Status CrossEntropy(Stream& stream, const Matrix& logits,
                            std::span<const std::int32_t> targets, StepStats* stats, bool loss_only,
                            std::span<std::byte> scratch) override;
  std::size_t CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t) const override;
  absl::Status FillInitial(Stream& stream, const InitialDraw& draw, std::int64_t first,
                           const Vector& out) override;
  absl::Status Accumulate(Stream& stream, const Vector& from, const Vector& to) override;
  absl::Status Cast(Stream& stream, const Vector& from, const Vector& to) override;
  absl::Status GradStats(Stream& stream, const Vector& grad, StepStats* stats,
                         std::span<std::byte> scratch) override;
  std::size_t GradStatsScratchBytes(std::int64_t size) const override;
  absl::Status FinishStats(Stream& stream, const StepStats* stats, float max_norm,
                           const StepScalars* step, UpdateScalars* scalars) override;
  absl::Status AdamW(Stream& stream, const Vector& master, const Vector& m, const Vector& v,
                     const Vector& grad, std::span<const DecaySegment> segments,
                     const AdamWOptions& options, const StepScalars* step,
                     const UpdateScalars* scalars) override;
  absl::Status AdamWSplit(Stream& stream, const Vector& compute, const Vector& remainder,
                          const Vector& m, const Vector& v, const Vector& grad,
                          std::span<const DecaySegment> segments, const AdamWOptions& options,
                          const StepScalars* step, const UpdateScalars* scalars) override;
  absl::Status SplitMaster(Stream& stream, const Vector& master, const Vector& compute,
                           const Vector& remainder) override;
  absl::Status JoinMaster(Stream& stream, const Vector& compute, const Vector& remainder,
                          const Vector& master) override;

 private:
  // What weights, activations and their gradients may be.
  static constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBf16};

  static absl::Status Launched(cudaError_t error, const char* kernel) {
    return CudaToStatus(error, kernel);
  }
  static absl::Status NormForward(const char* op, Stream& stream, const Matrix& x,
                                  const Matrix& delta, const Vector& weight, const Vector* bias,
                                  double eps, const Matrix& sum, const Matrix& y,
                                  const Vector* mean, const Vector& rstd);
  // `args` as the caller gave them: checks, then adds the scratch.
  absl::Status NormBackward(const char* op, Stream& stream, kernels::NormBackwardArgs args,
                            std::span<std::byte> scratch) const;
  static void CheckAttention(OpChecks& check, const Matrix& qkv, const AttentionShape& shape,
                             const Matrix& out, const Vector& lse);
  static absl::Status Activate(const char* op, kernels::Activation kind, Stream& stream,
                               const Matrix& x, const Matrix& y);
  static absl::Status ActivateBackward(const char* op, kernels::Activation kind, Stream& stream,
                                       const Matrix& dy, const Matrix& x, const Matrix& dx,
                                       const Matrix& y);
  static absl::Status CheckSplit(const char* op, const Vector& master, const Vector& compute,
                                 const Vector& remainder);

  std::unique_ptr<MatMulPlanner> matmuls_;
  std::unique_ptr<CudaAttention> attention_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_IMPL_H_

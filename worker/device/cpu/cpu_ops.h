#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_OPS_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_OPS_H_

// Ops on the CPU: checks, then work put into the stream, cut into tasks for the pool. Outside of
// products, the bits of a result do not depend on how work is cut. Operands in f64 are the truth
// that other backends and dtypes are tested against.
//
// Token ids and targets out of range are INVALID_ARGUMENT from the stream, because they are read
// only when the work runs.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cpu/cpu_matmul.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/thread_pool.h"
#include "worker/device/ops.h"

namespace fsdp::cpu {

// What weights, activations and their gradients may be.
inline constexpr std::initializer_list<DType> kOperandTypes = {DType::kF32, DType::kBf16,
                                                               DType::kF64};

class CpuOps final : public Ops {
 public:
  CpuOps(const KernelSet& kernels, ThreadPool& pool, Bf16Path bf16_path)
      : kernels_(kernels), pool_(pool), matmul_(kernels, pool, bf16_path) {}

  absl::Status MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                      Transpose trans_b, const Vector& bias, const Matrix& out,
                      bool accumulate) override;
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
  absl::Status RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                               const Vector& weight, const Vector& rstd, const Matrix& residual,
                               const Matrix& dx, const Matrix& y, const Vector& d_weight,
                               bool accumulate, std::span<std::byte> scratch) override;
  std::size_t NormBackwardScratchBytes(std::int64_t tokens, std::int64_t dim) const override;
  absl::Status LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                const Vector& weight, const Vector& bias, double eps,
                                const Matrix& sum, const Matrix& y, const Vector& mean,
                                const Vector& rstd) override;
  absl::Status LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                 const Vector& weight, const Vector& bias, const Vector& mean,
                                 const Vector& rstd, const Matrix& residual, const Matrix& dx,
                                 const Matrix& y, const Vector& d_weight, const Vector& d_bias,
                                 bool accumulate, std::span<std::byte> scratch) override;
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
  std::size_t CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t vocab) const override;
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
  using ElementwiseKernel = void (*Kernels::*)(const ElementwiseArgs&, std::int64_t, std::int64_t);

  // Puts `work` into `stream` once the checks have passed.
  static absl::Status Enqueue(Stream& stream, const absl::Status& checked,
                              std::function<absl::Status()> work);
  // run(begin, end) over [0, size) in pieces of about kTaskElements, when one index costs
  // `elements_each`; pieces are multiples of `granularity`.
  template <typename F>
  void ForRanges(std::int64_t size, std::int64_t elements_each, std::int64_t granularity, F run);

  absl::Status NormForward(const char* op, bool layer, Stream& stream, const Matrix& x,
                           const Matrix& delta, const Vector& weight, const Vector& bias,
                           double eps, const Matrix& sum, const Matrix& y, const Vector& mean,
                           const Vector& rstd);
  absl::Status NormBackward(const char* op, bool layer, Stream& stream, const Matrix& dy,
                            const Matrix& x, const Vector& weight, const Vector& bias,
                            const Vector& mean, const Vector& rstd, const Matrix& residual,
                            const Matrix& dx, const Matrix& y, const Vector& d_weight,
                            const Vector& d_bias, bool accumulate);
  void RunRope(const Matrix& qkv, const AttentionShape& shape, const Matrix& cos, const Matrix& sin,
               bool inverse);
  absl::Status Unary(const char* op, ElementwiseKernel kernel, Stream& stream, const Matrix& x,
                     const Matrix& y);
  absl::Status Binary(const char* op, ElementwiseKernel kernel, const char* a_name,
                      const char* b_name, const char* y_name, Stream& stream, const Matrix& a,
                      const Matrix& b, const Matrix& y);
  absl::Status ActivateBackward(const char* op, ElementwiseKernel kernel, Stream& stream,
                                const Matrix& dy, const Matrix& x, const Matrix& dx,
                                const Matrix& y);
  void ScatterRows(std::span<const std::int64_t> keys, const Matrix& from, const Matrix& to,
                   bool accumulate);
  void RunAdamW(AdamWArgs args, DType dtype, std::span<const DecaySegment> segments,
                const AdamWOptions& options, const StepScalars& step, const UpdateScalars& scalars);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  CpuMatMul matmul_;
};

// Elements that one task should handle: some microseconds of work.
inline constexpr std::int64_t kTaskElements = 32768;

// Columns that one task sums over all rows: two cache lines of f32.
inline constexpr std::int64_t kColumnGranularity = 32;

template <typename F>
void CpuOps::ForRanges(std::int64_t size, std::int64_t elements_each, std::int64_t granularity,
                       F run) {
  if (size <= 0) return;
  const std::int64_t wanted =
      kTaskElements / (elements_each > 0 ? elements_each : 1) / granularity * granularity;
  const std::int64_t step = wanted > granularity ? wanted : granularity;
  auto task = [&](std::int64_t index, int /*slot*/) {
    const std::int64_t begin = index * step;
    run(begin, size - begin < step ? size : begin + step);
  };
  pool_.ParallelFor((size + step - 1) / step, task);
}

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_OPS_H_

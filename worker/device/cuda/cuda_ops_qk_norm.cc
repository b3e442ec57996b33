// The norm of query and key heads with rope behind it.

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_ops_impl.h"

namespace fsdp {
namespace {

void CheckOperands(OpChecks& check, const char* name, const Matrix& qkv,
                   const AttentionShape& shape, const QkNormOperands& operands) {
  check.OneOf(name, qkv.dtype, {DType::kF32, DType::kBf16})
      .QkNorm(name, qkv, shape, operands)
      .That(shape.head_dim <= kernels::kMaxQkNormDim,
            absl::StrFormat("head_dim is %d, must be at most %d", shape.head_dim,
                            kernels::kMaxQkNormDim));
}

kernels::QkNormArgs ArgsOf(const Matrix& qkv, const AttentionShape& shape,
                           const QkNormOperands& operands) {
  kernels::QkNormArgs args;
  args.qkv = qkv;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = static_cast<int>(shape.head_dim);
  args.seq = shape.seq;
  args.q_weight = operands.q_weight;
  args.k_weight = operands.k_weight;
  args.rstd = operands.rstd;
  args.cos = operands.cos;
  args.sin = operands.sin;
  args.raw = operands.raw;
  return args;
}

}  // namespace

absl::Status CudaOps::QkNormRope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                                 double eps, const QkNormOperands& operands) {
  OpChecks check("QkNormRope");
  CheckOperands(check, "qkv", qkv, shape, operands);
  RETURN_IF_ERROR(check.status());
  kernels::QkNormArgs args = ArgsOf(qkv, shape, operands);
  args.eps = static_cast<float>(eps);
  return Launched(kernels::QkNormRope(CudaStreamOf(stream), args), "QkNormRope");
}

absl::Status CudaOps::QkNormRopeBackward(Stream& stream, const Matrix& d_qkv,
                                         const AttentionShape& shape,
                                         const QkNormOperands& operands, const Vector& d_q_weight,
                                         const Vector& d_k_weight, bool accumulate,
                                         std::span<std::byte> scratch) {
  OpChecks check("QkNormRopeBackward");
  CheckOperands(check, "d_qkv", d_qkv, shape, operands);
  check.OneOf("d_q_weight", d_q_weight.dtype, {DType::kF32, d_qkv.dtype})
      .Vector("d_q_weight", d_q_weight, d_q_weight.dtype, shape.head_dim)
      .Vector("d_k_weight", d_k_weight, d_q_weight.dtype, shape.head_dim)
      .Scratch(scratch, QkNormBackwardScratchBytes(d_qkv.rows, shape.head_dim));
  RETURN_IF_ERROR(check.status());
  kernels::QkNormArgs args = ArgsOf(d_qkv, shape, operands);
  args.d_q_weight = d_q_weight;
  args.d_k_weight = d_k_weight;
  args.accumulate = accumulate;
  args.scratch = reinterpret_cast<float*>(scratch.data());
  return Launched(kernels::QkNormRopeBackward(CudaStreamOf(stream), args), "QkNormRopeBackward");
}

std::size_t CudaOps::QkNormBackwardScratchBytes(std::int64_t tokens, std::int64_t head_dim) const {
  return kernels::QkNormScratchFloats(tokens, head_dim) * sizeof(float);
}

}  // namespace fsdp

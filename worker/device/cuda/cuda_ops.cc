#include "worker/device/cuda/cuda_ops.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_ops_impl.h"

namespace fsdp {

absl::Status CudaOps::MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                             Transpose trans_b, const Vector& bias, const Matrix& out,
                             bool accumulate) {
  const bool ta = trans_a == Transpose::kYes;
  const bool tb = trans_b == Transpose::kYes;
  const std::int64_t m = ta ? a.cols : a.rows;
  const std::int64_t k = ta ? a.rows : a.cols;
  const std::int64_t n = tb ? b.rows : b.cols;
  OpChecks check("MatMul");
  check.OneOf("a", a.dtype, kFloats)
      .Matrix("a", a, a.dtype, a.rows, a.cols)
      .Matrix("b", b, a.dtype, tb ? n : k, tb ? k : n)
      .OneOf("out", out.dtype, {DType::kF32, a.dtype})
      .Matrix("out", out, out.dtype, m, n);
  if (!bias.empty()) check.Vector("bias", bias, a.dtype, out.cols);
  RETURN_IF_ERROR(check.status());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  const cudaStream_t cuda_stream = CudaStreamOf(stream);
  // The library's epilogue takes a bias of out's dtype only, and where rows begin at odd elements
  // it rounds before it adds. Then the bias goes first and the product is added to it: one
  // rounding.
  const bool odd = (out.stride % 2 != 0 || reinterpret_cast<std::uintptr_t>(out.data) % 4 != 0) &&
                   out.dtype == DType::kBf16;
  const bool fused_bias = !bias.empty() && bias.dtype == out.dtype && k > 0 && (accumulate || !odd);
  const bool separate_bias = !bias.empty() && !fused_bias;
  if (!accumulate && (separate_bias || k == 0)) {
    const std::size_t element = SizeOf(out.dtype);
    FSDP_RETURN_IF_CUDA_ERROR(cudaMemset2DAsync(out.data, out.stride * element, 0,
                                                out.cols * element, out.rows, cuda_stream));
  }
  if (separate_bias) {
    RETURN_IF_ERROR(Launched(kernels::AddBias(cuda_stream, bias, out), "AddBias"));
  }
  if (k == 0) return absl::OkStatus();
  return matmuls_->Run(cuda_stream, a, trans_a, b, trans_b,
                       {.bias = fused_bias ? bias.data : nullptr}, out,
                       accumulate || separate_bias);
}

// cuBLASLt writes the second output in bf16 only, at 16-byte alignment.
absl::Status CudaOps::MatMulGelu(Stream& stream, const Matrix& a, const Matrix& b,
                                 Transpose trans_b, const Vector& bias, const Matrix& pre,
                                 const Matrix& out) {
  const auto aligned = [](const Matrix& matrix) {
    return matrix.stride * SizeOf(matrix.dtype) % 16 == 0 &&
           reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
  };
  if (!FusesMatMulGelu(a.dtype) || a.cols == 0 || pre.stride != out.stride || !aligned(pre) ||
      !aligned(out)) {
    return Ops::MatMulGelu(stream, a, b, trans_b, bias, pre, out);
  }
  const bool tb = trans_b == Transpose::kYes;
  OpChecks check("MatMulGelu");
  check.OneOf("a", a.dtype, kFloats)
      .Matrix("a", a, a.dtype, a.rows, a.cols)
      .Matrix("b", b, a.dtype, tb ? out.cols : a.cols, tb ? a.cols : out.cols)
      .Matrix("pre", pre, a.dtype, a.rows, out.cols)
      .Matrix("out", out, a.dtype, a.rows, out.cols);
  if (!bias.empty()) check.Vector("bias", bias, a.dtype, out.cols);
  RETURN_IF_ERROR(check.status());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  const absl::Status status =
      matmuls_->Run(CudaStreamOf(stream), a, Transpose::kNo, b, trans_b,
                    {.bias = bias.data, .gelu_input = pre.data}, out, /*accumulate=*/false);
  if (!absl::IsUnimplemented(status)) return status;
  return Ops::MatMulGelu(stream, a, b, trans_b, bias, pre, out);
}

absl::Status CudaOps::Rope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                           const Matrix& cos, const Matrix& sin, bool inverse) {
  OpChecks check("Rope");
  check.OneOf("qkv", qkv.dtype, kFloats)
      .Heads("qkv", qkv, shape)
      .RopeTables(cos, sin, shape, DType::kF32);
  RETURN_IF_ERROR(check.status());
  if (qkv.rows == 0) return absl::OkStatus();
  return Launched(kernels::Rope(CudaStreamOf(stream), qkv, shape.num_heads + shape.num_kv_heads,
                                shape.head_dim, shape.seq, cos, sin, inverse),
                  "Rope");
}

absl::Status CudaOps::AttentionForward(Stream& stream, const Matrix& qkv,
                                       const AttentionShape& shape,
                                       std::span<const std::int32_t> document_begins,
                                       const Matrix& out, const Vector& lse,
                                       std::span<std::byte> scratch) {
  OpChecks check("AttentionForward");
  CheckAttention(check, qkv, shape, out, lse);
  check.Documents(shape, document_begins);
  RETURN_IF_ERROR(check.status());
  if (qkv.rows == 0) return absl::OkStatus();
  check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, false));
  RETURN_IF_ERROR(check.status());
  return attention_->Forward(CudaStreamOf(stream), qkv, shape, document_begins, out, lse, scratch);
}

absl::Status CudaOps::AttentionBackward(Stream& stream, const Matrix& d_out, const Matrix& qkv,
                                        const Matrix& out, const Vector& lse,
                                        const AttentionShape& shape,
                                        std::span<const std::int32_t> document_begins,
                                        const Matrix& d_qkv, std::span<std::byte> scratch) {
  OpChecks check("AttentionBackward");
  CheckAttention(check, qkv, shape, out, lse);
  check.Documents(shape, document_begins);
  check.Matrix("d_out", d_out, qkv.dtype, out.rows, out.cols)
      .Matrix("d_qkv", d_qkv, qkv.dtype, qkv.rows, qkv.cols);
  RETURN_IF_ERROR(check.status());
  if (qkv.rows == 0) return absl::OkStatus();
  check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, true));
  RETURN_IF_ERROR(check.status());
  return attention_->Backward(CudaStreamOf(stream), d_out, qkv, out, lse, shape, document_begins,
                              d_qkv, scratch);
}

std::size_t CudaOps::AttentionScratchBytes(const AttentionShape& shape, DType dtype,
                                           bool backward) const {
  return attention_->ScratchBytes(shape, dtype, backward);
}

absl::StatusOr<AttentionKernels> CudaOps::ChosenAttention(const AttentionShape& shape,
                                                          DType dtype) const {
  AttentionKernels kernels;
  ASSIGN_OR_RETURN(kernels.forward, attention_->KernelName(shape, dtype, /*backward=*/false));
  ASSIGN_OR_RETURN(kernels.backward, attention_->KernelName(shape, dtype, /*backward=*/true));
  return kernels;
}

void CudaOps::CheckAttention(OpChecks& check, const Matrix& qkv, const AttentionShape& shape,
                             const Matrix& out, const Vector& lse) {
  check.OneOf("qkv", qkv.dtype, kFloats)
      .Heads("qkv", qkv, shape)
      .That(shape.head_dim <= 256,
            absl::StrFormat("head_dim is %d, must be at most 256", shape.head_dim))
      .Matrix("out", out, qkv.dtype, qkv.rows, shape.num_heads * shape.head_dim)
      .Vector("lse", lse, DType::kF32, shape.batch * shape.num_heads * shape.seq);
}

absl::StatusOr<std::unique_ptr<Ops>> CreateCudaOps(const CudaOpsContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<MatMulPlanner> matmuls,
                   MatMulPlanner::Create({.workspace = context.matmul_workspace,
                                          .workspace_stream = context.compute_stream,
                                          .time_algorithms = !context.deterministic,
                                          .cache_directory = context.cache_directory,
                                          .device = context.device}));
  ASSIGN_OR_RETURN(std::unique_ptr<CudaAttention> attention,
                   CudaAttention::Create(context.attention, context.deterministic));
  return std::make_unique<CudaOps>(std::move(matmuls), std::move(attention));
}

}  // namespace fsdp

#include "worker/device/cuda/fp8_product.h"

#include "proto/support/status.h"
#include "worker/device/cuda/cuda_status.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<Fp8Product>> Fp8Product::Create(std::int64_t edge,
                                                               std::span<std::byte> workspace) {
  std::unique_ptr<Fp8Product> product(new Fp8Product(workspace));
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtCreate(product->handle_.receive()));
  FSDP_RETURN_IF_CUBLAS_ERROR(
      cublasLtMatmulDescCreate(product->descriptor_.receive(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // Column by column, as cuBLASLt has it, out^T = b a^T; e4m3 products have their first operand
  // transposed, always.
  const cublasOperation_t transposed = CUBLAS_OP_T;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulDescSetAttribute(
      product->descriptor_.get(), CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  // As trainings in fp8 have it: partial sums stay in the tensor cores for longer.
  const std::int8_t fast = 1;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulDescSetAttribute(
      product->descriptor_.get(), CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)));
  FSDP_RETURN_IF_CUBLAS_ERROR(
      cublasLtMatrixLayoutCreate(product->in_.receive(), CUDA_R_8F_E4M3, edge, edge, edge));
  FSDP_RETURN_IF_CUBLAS_ERROR(
      cublasLtMatrixLayoutCreate(product->out_.receive(), CUDA_R_16BF, edge, edge, edge));
  UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceCreate(preference.receive()));
  const std::uint64_t bytes = workspace.size();
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceSetAttribute(
      preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
  int found = 0;
  const cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(
      product->handle_.get(), product->descriptor_.get(), product->in_.get(), product->in_.get(),
      product->out_.get(), product->out_.get(), preference.get(), 1, &product->chosen_, &found);
  if (asked == CUBLAS_STATUS_NOT_SUPPORTED || found == 0) return nullptr;
  FSDP_RETURN_IF_CUBLAS_ERROR(asked);
  return product;
}

absl::Status Fp8Product::Run(cudaStream_t stream, const void* a, const void* b, void* out) {
  const float one = 1;
  const float zero = 0;
  return CublasToStatus(
      cublasLtMatmul(handle_.get(), descriptor_.get(), &one, b, in_.get(), a, in_.get(), &zero, out,
                     out_.get(), out, out_.get(), &chosen_.algo, workspace_.data(),
                     chosen_.workspaceSize, stream),
      "cublasLtMatmul");
}

}  // namespace fsdp

#include "worker/device/cuda/cuda_status.h"

#include "absl/strings/str_format.h"

namespace fsdp {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaToStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The error is reported here and must not show up again after the next launch. One that has
  // ruined the context stays.
  static_cast<void>(cudaGetLastError());
  return {CodeOf(error),
          absl::StrFormat("%s: %s (%s)", call, cudaGetErrorName(error), cudaGetErrorString(error))};
}

absl::Status CublasToStatus(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) code = absl::StatusCode::kResourceExhausted;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) code = absl::StatusCode::kUnimplemented;
  return {code, absl::StrFormat("%s: %s", call, cublasLtGetStatusName(status))};
}

}  // namespace fsdp

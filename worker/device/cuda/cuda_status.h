#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_STATUS_H_

// One translator per library, each with the text of the call that failed. Thread-safe.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace fsdp {

//   RESOURCE_EXHAUSTED   out of device or pinned memory
//   FAILED_PRECONDITION  no device, no driver or one older than the toolkit
//   INTERNAL             everything else; after a kernel fault the context is lost for good and
//                        only a new process helps
absl::Status CudaToStatus(cudaError_t error, std::string_view call);

//   RESOURCE_EXHAUSTED  CUBLAS_STATUS_ALLOC_FAILED
//   UNIMPLEMENTED       CUBLAS_STATUS_NOT_SUPPORTED
//   INTERNAL            everything else
absl::Status CublasToStatus(cublasStatus_t status, std::string_view call);

}  // namespace fsdp

#define FSDP_RETURN_IF_CUDA_ERROR(call)                               \
  do {                                                                \
    if (cudaError_t fsdp_error_ = (call); fsdp_error_ != cudaSuccess) \
      return ::fsdp::CudaToStatus(fsdp_error_, #call);                \
  } while (false)

#define FSDP_RETURN_IF_CUBLAS_ERROR(call)                                          \
  do {                                                                             \
    if (cublasStatus_t fsdp_error_ = (call); fsdp_error_ != CUBLAS_STATUS_SUCCESS) \
      return ::fsdp::CublasToStatus(fsdp_error_, #call);                           \
  } while (false)

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_STATUS_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_H_

// The operations of worker/device/ops.h on a CUDA device: operands are checked here, on the host,
// then go to cuBLASLt (matmul.h), cuDNN (cudnn_attention.h) or the own kernels (kernels/kernels.h).

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/ops.h"

namespace fsdp {

// What CudaDevice hands to its operations; everything in it outlives them.
struct CudaOpsContext {
  cudaStream_t compute_stream = nullptr;
  std::span<std::byte> matmul_workspace;  // used on compute_stream only
  AttentionBackend attention = AttentionBackend::kAuto;
  bool deterministic = false;
  std::string cache_directory;
  std::string device;  // model name
};

//   FAILED_PRECONDITION  attention is kCudnn and the library cannot be opened
//   INTERNAL             a library handle could not be made
absl::StatusOr<std::unique_ptr<Ops>> CreateCudaOps(const CudaOpsContext& context);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_OPS_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_

// The CUDA backend of worker/device/device.h.
//
// Thread rule: as device.h. CreateCudaDevice makes the device current for the calling thread, which
// must be the step thread.
// Lifetime: as device.h; CudaDevice owns the library handles and the one workspace of matmuls.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace fsdp {

enum class AttentionBackend : std::uint8_t {
  kAuto,   // cuDNN where the library is present and takes the shape, else the own kernels
  kOwn,    // the own kernels only
  kCudnn,  // cuDNN or an error
};

// Where memory comes from that the ranks of a machine may map into each other; both null: from
// where all other does.
struct ShareableMemory {
  absl::StatusOr<void*> (*allocate)(std::size_t size_bytes) = nullptr;
  void (*free)(void* data) = nullptr;
};

struct CudaDeviceOptions {
  int ordinal = 0;  // of the devices that this process sees
  AttentionBackend attention = AttentionBackend::kAuto;
  // Every operation gives the same bits on every call. false lets cuDNN's attention backward add up
  // dQ in any order, which is faster.
  bool deterministic = false;
  // Workspace of matmuls on the compute stream; NVIDIA's libraries want 32 MiB on Hopper.
  std::size_t matmul_workspace_bytes = std::size_t{32} << 20;
  // Where the fastest algorithm of each large matmul is kept between runs (matmul_cache.h); empty:
  // nowhere. Deterministic devices do not time, so they neither read nor write it.
  std::string cache_directory;
  ShareableMemory shareable;  // of AllocateShareable
};

//   FAILED_PRECONDITION  no driver, no such device, or a device older than the built code
//   RESOURCE_EXHAUSTED   no memory for the workspace
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);

// The CUDA stream behind a Stream of a CUDA device.
cudaStream_t CudaStreamOf(Stream& stream);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_

#ifndef FSDPCTL_TESTS_GPU_SPIN_H_
#define FSDPCTL_TESTS_GPU_SPIN_H_

// Kernels that hold a stream: one warp each. No Abseil in here: nvcc reads this header.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp {

// *at = the device's time in ns when `stream` gets here. `at` is device memory.
cudaError_t LaunchStamp(cudaStream_t stream, std::uint64_t* at);
// Ends when the device's time has reached *at + nanoseconds.
cudaError_t LaunchSpinUntil(cudaStream_t stream, const std::uint64_t* at,
                            std::uint64_t nanoseconds);

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_GPU_SPIN_H_

#include "tests/gpu/spin.h"

namespace fsdp {
namespace {

__device__ std::uint64_t Now() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void Stamp(std::uint64_t* at) { *at = Now(); }

__global__ void SpinUntil(const std::uint64_t* at, std::uint64_t nanoseconds) {
  const std::uint64_t end = *at + nanoseconds;
  // Sleeping leaves issue slots and power to the kernels beside it.
  while (Now() < end) __nanosleep(500);
}

}  // namespace

cudaError_t LaunchStamp(cudaStream_t stream, std::uint64_t* at) {
  Stamp<<<1, 1, 0, stream>>>(at);
  return cudaGetLastError();
}

cudaError_t LaunchSpinUntil(cudaStream_t stream, const std::uint64_t* at,
                            std::uint64_t nanoseconds) {
  SpinUntil<<<1, 1, 0, stream>>>(at, nanoseconds);
  return cudaGetLastError();
}

}  // namespace fsdp

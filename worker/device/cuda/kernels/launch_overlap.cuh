#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_OVERLAP_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_OVERLAP_CUH_

// A kernel that is launched while the one before it still runs (programmatic dependent launch):
// from sm_90 on. Before, these are nothing, and the launcher asks for no overlap.

namespace fsdp::kernels {

// The next kernel may be launched; it sees nothing of this one until WaitForPreviousKernel.
__device__ __forceinline__ void LetNextKernelStart() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Returns when the kernel before has ended and what it wrote is visible.
__device__ __forceinline__ void WaitForPreviousKernel() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_OVERLAP_CUH_

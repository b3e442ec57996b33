#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_SOFTMAX_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_SOFTMAX_CUH_

// What the cross-entropy kernels share: exponentials and the running softmax sum.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "worker/device/cuda/kernels/device_math.cuh"

namespace fsdp::kernels {

// exp(x - base), exactly 1 at x = base.
template <typename T>
__device__ __forceinline__ float ExpAbove(float x, float base) {
  if constexpr (std::is_same_v<T, float>) return expf(x - base);
  return __expf(x - base);
}

// exp(x - base) for many x: one multiply-add before the instruction that all forms end in. In
// bf16's form the rounding of base / ln 2 scales every value alike; it leaves a softmax's quotient.
template <typename T>
struct ExpFrom {
  static constexpr float kLog2E = 1.4426950408889634F;
  float base;

  __device__ __forceinline__ explicit ExpFrom(float from)
      : base(std::is_same_v<T, float> ? from : -from * kLog2E) {}
  __device__ __forceinline__ float operator()(float x) const {
    if constexpr (std::is_same_v<T, float>) return expf(x - base);
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__fmaf_rn(x, kLog2E, base)));
    return result;
  }
};

// Running maximum and sum of exp(x - maximum).
template <typename T>
struct RunningSoftmax {
  float max = -INFINITY;
  float sum = 0;

  template <int V>
  __device__ __forceinline__ void Take(const float (&values)[V]) {
    float top = max;
#pragma unroll
    for (int i = 0; i < V; ++i) top = fmaxf(top, values[i]);
    if (top == -INFINITY) {  // -Inf adds nothing; a NaN, which fmaxf passes over, must stay
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (isnan(values[i])) sum = values[i];
      }
      return;
    }
    if (top > max) {
      sum *= ExpAbove<T>(max, top);
      max = top;
    }
    const ExpFrom<T> exp(top);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += exp(values[i]);
  }
  // The sum as if `top` >= max were the maximum.
  [[nodiscard]] __device__ __forceinline__ float SumBelow(float top) const {
    return sum == 0 ? 0 : sum * ExpAbove<T>(max, top);
  }
};

// Whether a launch was made: rows too short to be worth it, not aligned, or too long are left to
// the kernel that reads a row twice.
struct SharedRowsLaunch {
  bool made = false;
  cudaError_t error = cudaSuccess;
};
SharedRowsLaunch CrossEntropySharedRows(cudaStream_t stream, const Matrix& logits,
                                        const std::int32_t* targets, double* row_loss,
                                        bool loss_only);

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_SOFTMAX_CUH_

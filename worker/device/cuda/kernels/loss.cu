// Softmax cross-entropy over a chunk of logits: the logits become their own gradient in place. A
// row's first vectors stay in registers; what does not fit is read again, out of the L2 cache.

#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/ops.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 512;
inline constexpr int kKept = 6;  // vectors a thread keeps

// exp(x - base). For bf16 logits one multiply-add and the hardware's 2^x.
template <typename T>
__device__ __forceinline__ float ExpAbove(float x, float base) {
  if constexpr (std::is_same_v<T, float>) return expf(x - base);
  constexpr float kLog2E = 1.4426950408889634F;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(fmaf(x, kLog2E, -base * kLog2E)));
  return result;
}

// Running maximum and sum of exp(x - maximum).
template <typename T>
struct RunningSoftmax {
  float max = -INFINITY;
  float sum = 0;

  template <int V>
  __device__ __forceinline__ void Take(const Pack<T, V>& pack) {
    float top = max;
#pragma unroll
    for (int i = 0; i < V; ++i) top = fmaxf(top, ToFloat(pack.at[i]));
    if (top == -INFINITY) return;
    if (top > max) {
      sum *= ExpAbove<T>(max, top);
      max = top;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) sum += ExpAbove<T>(ToFloat(pack.at[i]), top);
  }
};

template <typename T, int V>
__global__ void __launch_bounds__(kThreads, 2)
    CrossEntropyKernel(T* logits, std::int64_t stride, std::int64_t cols,
                       const std::int32_t* targets, double* row_loss, bool loss_only) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x;
  T* x = logits + row * stride;
  const std::int64_t target = targets[row];
  const bool ignored = target == kIgnoreTarget;
  const std::int64_t num_vectors = cols / V;
  if (ignored) {
    if (threadIdx.x == 0) row_loss[row] = 0;
    if (loss_only) return;
    Pack<T, V> zero;
#pragma unroll
    for (int i = 0; i < V; ++i) zero.at[i] = FromFloat<T>(0);
    for (std::int64_t k = threadIdx.x; k < num_vectors; k += kThreads) zero.Store(x + k * V);
    return;
  }
  const float target_logit = ToFloat(x[target]);

  Pack<T, V> kept[kKept];
  RunningSoftmax<T> running;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t at = threadIdx.x + k * kThreads;
    if (at < num_vectors) kept[k] = Pack<T, V>::Load(x + at * V);
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (threadIdx.x + k * kThreads < num_vectors) running.Take(kept[k]);
  }
#pragma unroll 4
  for (std::int64_t at = threadIdx.x + kKept * kThreads; at < num_vectors; at += kThreads) {
    running.Take(Pack<T, V>::Load(x + at * V));
  }
  const float max = BlockReduce(running.max, MaxOp<float>{}, -INFINITY, shared);
  const float scaled = running.sum == 0 ? 0 : running.sum * ExpAbove<T>(running.max, max);
  const float sum = BlockReduce(scaled, SumOp<float>{}, 0.0F, shared);
  if (threadIdx.x == 0) {
    row_loss[row] = static_cast<double>(max) + logf(sum) - static_cast<double>(target_logit);
  }
  if (loss_only) return;

  // The barriers inside BlockReduce put every read of x before the first write.
  const float inverse = 1.0F / sum;
  const auto write = [&](const Pack<T, V>& pack, std::int64_t at) {
    Pack<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float hit = at * V + i == target ? 1.0F : 0.0F;
      out.at[i] = FromFloat<T>(ExpAbove<T>(ToFloat(pack.at[i]), max) * inverse - hit);
    }
    out.Store(x + at * V);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t at = threadIdx.x + k * kThreads;
    if (at < num_vectors) write(kept[k], at);
  }
#pragma unroll 2
  for (std::int64_t at = threadIdx.x + kKept * kThreads; at < num_vectors; at += kThreads) {
    write(Pack<T, V>::Load(x + at * V), at);
  }
}

// One block, so that the sum has one order.
__global__ void __launch_bounds__(kThreads)
    FinishLossKernel(const double* row_loss, const std::int32_t* targets, std::int64_t rows,
                     StepStats* stats) {
  __shared__ double shared[32];
  double loss = 0;
  double valid = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    loss += row_loss[row];
    valid += targets[row] == kIgnoreTarget ? 0 : 1;
  }
  loss = BlockReduce(loss, SumOp<double>{}, 0.0, shared);
  valid = BlockReduce(valid, SumOp<double>{}, 0.0, shared);
  if (threadIdx.x != 0) return;
  stats->loss_sum += loss;
  stats->valid_tokens += valid;
}

}  // namespace

cudaError_t CrossEntropy(cudaStream_t stream, const Matrix& logits, const std::int32_t* targets,
                         StepStats* stats, bool loss_only, double* scratch) {
  if (logits.rows == 0) return cudaSuccess;
  const cudaError_t error = WithType(logits.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kV = 16 / static_cast<int>(sizeof(T));
    VectorWidth width(kV);
    width.Take(logits);
    const auto kernel =
        width.elements() == kV ? CrossEntropyKernel<T, kV> : CrossEntropyKernel<T, 1>;
    kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, stream>>>(
        Data<T>(logits), logits.stride, logits.cols, targets, scratch, loss_only);
    return cudaGetLastError();
  });
  if (error != cudaSuccess) return error;
  FinishLossKernel<<<1, kThreads, 0, stream>>>(scratch, targets, logits.rows, stats);
  return cudaGetLastError();
}

}  // namespace fsdp::kernels

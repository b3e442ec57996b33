// Softmax cross-entropy over a chunk of logits: the logits become their own gradient in place. A
// row's first vectors stay in registers; what does not fit is read again, out of the L2 cache.
// (Rows in the shared memory of a cluster, read once, were tried: 57 to 75 % of a copy, this 70 to
// 82 %.)

#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/ops.h"

namespace fsdp::kernels {
namespace {

// exp(x - base), exactly 1 at x = base.
template <typename T>
__device__ __forceinline__ float ExpAbove(float x, float base) {
  if constexpr (std::is_same_v<T, float>) return expf(x - base);
  return __expf(x - base);
}

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
#pragma unroll
    for (int i = 0; i < V; ++i) sum += ExpAbove<T>(values[i], top);
  }
  // The sum as if `top` >= max were the maximum.
  [[nodiscard]] __device__ __forceinline__ float SumBelow(float top) const {
    return sum == 0 ? 0 : sum * ExpAbove<T>(max, top);
  }
};

// A thread keeps its first kKept vectors in registers.
template <typename T, int V, int kThreads, int kKept>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
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

  // A whole access is kept as words; a lone element has no words to keep.
  using Kept = std::conditional_t<V == 1, Pack<T, V>, Words>;
  Kept kept[kKept];
  RunningSoftmax<T> running;
  const auto take = [&running](const Kept& packed) {
    float values[V];
    packed.Unpack(values);
    running.Take(values);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t at = threadIdx.x + k * kThreads;
    if (at < num_vectors) kept[k] = Kept::Load(x + at * V);
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (threadIdx.x + k * kThreads < num_vectors) take(kept[k]);
  }
#pragma unroll 4
  for (std::int64_t at = threadIdx.x + kKept * kThreads; at < num_vectors; at += kThreads) {
    take(Kept::Load(x + at * V));
  }
  const float max = BlockReduce(running.max, MaxOp<float>{}, -INFINITY, shared);
  const float sum = BlockReduce(running.SumBelow(max), SumOp<float>{}, 0.0F, shared);
  if (threadIdx.x == 0) {
    row_loss[row] = static_cast<double>(max) + logf(sum) - static_cast<double>(target_logit);
  }
  if (loss_only) return;

  // The barriers inside BlockReduce put every read of x before the first write.
  const float inverse = 1.0F / sum;
  const auto write = [&](const Kept& packed, std::int64_t at) {
    float values[V];
    packed.Unpack(values);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float hit = at * V + i == target ? 1.0F : 0.0F;
      values[i] = ExpAbove<T>(values[i], max) * inverse - hit;
    }
    StoreFloats<T, V>(x + at * V, values);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t at = threadIdx.x + k * kThreads;
    if (at < num_vectors) write(kept[k], at);
  }
#pragma unroll 2
  for (std::int64_t at = threadIdx.x + kKept * kThreads; at < num_vectors; at += kThreads) {
    write(Kept::Load(x + at * V), at);
  }
}

inline constexpr int kFinishThreads = 1024;

// One block, so that the sum has one order.
__global__ void __launch_bounds__(kFinishThreads)
    FinishLossKernel(const double* row_loss, const std::int32_t* targets, std::int64_t rows,
                     StepStats* stats) {
  __shared__ double shared[32];
  double loss = 0;
  double valid = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kFinishThreads) {
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
    // Two blocks per multiprocessor overlap one row's reading with another's writing. Rows so long
    // that those in work would not fit the L2 cache together get one.
    constexpr std::int64_t kLongRowBytes = 160 << 10;
    const bool is_long = logits.cols * static_cast<std::int64_t>(sizeof(T)) > kLongRowBytes;
    const auto launch = [&](auto kernel, int threads) {
      kernel<<<static_cast<unsigned>(logits.rows), threads, 0, stream>>>(
          Data<T>(logits), logits.stride, logits.cols, targets, scratch, loss_only);
    };
    if (width.elements() != kV) {
      launch(CrossEntropyKernel<T, 1, 512, 6>, 512);
    } else if (is_long) {
      launch(CrossEntropyKernel<T, kV, 1024, 6>, 1024);
    } else {
      launch(CrossEntropyKernel<T, kV, 512, 8>, 512);
    }
    return cudaGetLastError();
  });
  if (error != cudaSuccess) return error;
  FinishLossKernel<<<1, kFinishThreads, 0, stream>>>(scratch, targets, logits.rows, stats);
  return cudaGetLastError();
}

}  // namespace fsdp::kernels

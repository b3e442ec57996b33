// Softmax cross-entropy over a chunk of logits: the logits become their own gradient in place. A
// row is read once where registers and shared memory hold it; what does not fit is read again, out
// of the L2 cache. Rows of two blocks that share a multiprocessor overlap one's reading with the
// other's writing. A long row takes a multiprocessor to itself: there a block goes from row to row,
// and each place that it has written out it fills at once with the next row. (Clusters that share a
// row between multiprocessors were tried: 35 to 40 % of a copy for 150,000 columns; a block a row,
// 74 %.)

#include <cuda_pipeline.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/ops.h"

namespace fsdp::kernels {
namespace {

// exp(x - max), exactly 1 at x = max.
template <typename T>
__device__ __forceinline__ float ExpAbove(float x, float max) {
  if constexpr (std::is_same_v<T, float>) return expf(x - max);
  return __expf(x - max);
}

// Running maximum and sum of exp(x - maximum).
template <typename T>
struct RunningSoftmax {
  float max = -INFINITY;
  float sum = 0;

  template <int V>
  __device__ __forceinline__ void Take(const float (&values)[V]) {
    float top = values[0];
#pragma unroll
    for (int i = 1; i < V; ++i) top = fmaxf(top, values[i]);
    if (top > max) {
      sum *= ExpAbove<T>(max, top);
      max = top;
    }
    if (max == -INFINITY) {  // -Inf adds nothing; a NaN, which fmaxf passes over, must stay
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (isnan(values[i])) sum = values[i];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) sum += ExpAbove<T>(values[i], max);
  }
  // The sum as if `top` >= max were the maximum.
  [[nodiscard]] __device__ __forceinline__ float SumBelow(float top) const {
    return sum == 0 ? 0 : sum * ExpAbove<T>(max, top);
  }
};

// A block per row. It keeps kKept vectors a thread in registers and `num_staged` vectors in shared
// memory.
template <typename T, int V, int kThreads, int kKept>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    CrossEntropyKernel(T* logits, std::int64_t stride, int cols, const std::int32_t* targets,
                       double* row_loss, bool loss_only, int num_staged) {
  // A whole access is kept as words; a lone element has no words to keep.
  using Kept = std::conditional_t<V == 1, Pack<T, V>, Words>;
  __shared__ float shared[32];
  extern __shared__ uint4 staged_bytes[];
  Kept* staged = reinterpret_cast<Kept*>(staged_bytes);

  const std::int64_t row = blockIdx.x;
  T* const x = logits + row * stride;
  const int target = targets[row];
  const int count = cols / V;
  if (target == kIgnoreTarget) {
    if (threadIdx.x == 0) row_loss[row] = 0;
    if (loss_only) return;
    Pack<T, V> zero;
#pragma unroll
    for (int i = 0; i < V; ++i) zero.at[i] = FromFloat<T>(0);
    for (int at = threadIdx.x; at < count; at += kThreads) zero.Store(x + at * V);
    return;
  }
  const float target_logit = ToFloat(x[target]);

  // Everything that is kept is asked for before anything is used.
  const int in_registers = kKept * kThreads;
  const int staged_end = min(count, in_registers + num_staged);
  if constexpr (V > 1) {
    for (int at = threadIdx.x + in_registers; at < staged_end; at += kThreads) {
      __pipeline_memcpy_async(staged + (at - in_registers), x + at * V, sizeof(Kept));
    }
    __pipeline_commit();
  }
  Kept kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int at = threadIdx.x + k * kThreads;
    if (at < count) kept[k] = Kept::Load(x + at * V);
  }
  RunningSoftmax<T> running;
  const auto take = [&running](const Kept& packed) {
    float values[V];
    packed.Unpack(values);
    running.Take(values);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (threadIdx.x + k * kThreads < count) take(kept[k]);
  }
  if constexpr (V > 1) {
    __pipeline_wait_prior(0);  // a thread uses only what it copied itself
#pragma unroll 4
    for (int at = threadIdx.x + in_registers; at < staged_end; at += kThreads) {
      take(staged[at - in_registers]);
    }
  }
#pragma unroll 4
  for (int at = threadIdx.x + in_registers + num_staged; at < count; at += kThreads) {
    take(Kept::Load(x + at * V));
  }
  const float max = BlockReduce(running.max, MaxOp<float>{}, -INFINITY, shared);
  const float sum = BlockReduce(running.SumBelow(max), SumOp<float>{}, 0.0F, shared);
  if (threadIdx.x == 0) {
    row_loss[row] = static_cast<double>(max) + logf(sum) - static_cast<double>(target_logit);
  }
  if (loss_only) return;

  // The barriers of the reductions put every read of the row before the first write.
  const float inverse = 1.0F / sum;
  const int target_vector = target / V;
  const auto write = [&](const Kept& packed, int at) {
    float values[V];
    packed.Unpack(values);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = ExpAbove<T>(values[i], max) * inverse;
    if (at == target_vector) {
#pragma unroll
      for (int i = 0; i < V; ++i) values[i] -= i == target % V ? 1.0F : 0.0F;
    }
    StoreFloats<T, V>(x + at * V, values);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int at = threadIdx.x + k * kThreads;
    if (at < count) write(kept[k], at);
  }
  if constexpr (V > 1) {
#pragma unroll 2
    for (int at = threadIdx.x + in_registers; at < staged_end; at += kThreads) {
      write(staged[at - in_registers], at);
    }
  }
#pragma unroll 2
  for (int at = threadIdx.x + in_registers + num_staged; at < count; at += kThreads) {
    write(Kept::Load(x + at * V), at);
  }
}

template <typename T, int V, int kThreads, int kKept>
cudaError_t LaunchCrossEntropy(cudaStream_t stream, const Matrix& logits,
                               const std::int32_t* targets, bool loss_only, double* scratch,
                               int shared_bytes) {
  const auto kernel = CrossEntropyKernel<T, V, kThreads, kKept>;
  const std::int64_t spill = std::max<std::int64_t>(0, logits.cols / V - kKept * kThreads);
  const int num_staged = static_cast<int>(std::min<std::int64_t>(spill, shared_bytes / 16));
  const int bytes = num_staged * 16;
  if (cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
      error != cudaSuccess) {
    return error;
  }
  kernel<<<static_cast<unsigned>(logits.rows), kThreads, static_cast<std::size_t>(bytes), stream>>>(
      Data<T>(logits), logits.stride, static_cast<int>(logits.cols), targets, scratch, loss_only,
      num_staged);
  return cudaGetLastError();
}

// A row of logits on its way through a multiprocessor.
struct RowInFlight {
  std::int64_t row;  // >= the number of rows: none
  int target;        // kIgnoreTarget also where there is no row
  float target_logit = 0;

  __device__ __forceinline__ RowInFlight(std::int64_t index, std::int64_t rows,
                                         const std::int32_t* targets)
      : row(index), target(index < rows ? targets[index] : kIgnoreTarget) {}
  [[nodiscard]] __device__ __forceinline__ bool counts() const { return target != kIgnoreTarget; }
};

// The gradient of a row's logits, as the row is written out.
template <typename T, int V>
struct RowGradient {
  T* to = nullptr;  // null: there is no row yet
  bool counts = false;
  int target = 0;
  float max = 0, inverse = 0;

  __device__ __forceinline__ void Write(const Words& packed, int at) const {
    if (to == nullptr) return;
    float values[V];
    packed.Unpack(values);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      values[i] = counts ? ExpAbove<T>(values[i], max) * inverse : 0.0F;
    }
    if (counts && at == target / V) {
#pragma unroll
      for (int i = 0; i < V; ++i) values[i] -= i == target % V ? 1.0F : 0.0F;
    }
    StoreFloats<T, V>(to + at * V, values);
  }
};

// A block on every multiprocessor takes each gridDim-th row and holds it whole: kKept vectors a
// thread in registers, up to kStaged in shared memory. A pass writes one row out and asks, place by
// place, for the next; what has arrived is summed up meanwhile.
template <typename T, int V, int kThreads, int kKept, int kStaged>
__global__ void __launch_bounds__(kThreads, 1)
    RowPipelineKernel(T* logits, std::int64_t stride, int cols, const std::int32_t* targets,
                      std::int64_t rows, double* row_loss) {
  constexpr int kBehind = 2;  // places between the request for one and its use
  __shared__ float shared[32];
  extern __shared__ uint4 staged_bytes[];
  Words* const staged = reinterpret_cast<Words*>(staged_bytes) + threadIdx.x;
  const int first_staged = threadIdx.x + kKept * kThreads;
  const int count = cols / V;

  Words kept[kKept];
  RowGradient<T, V> out;
  RowInFlight next(blockIdx.x, rows, targets);
  if (threadIdx.x == 0 && next.counts()) {
    next.target_logit = ToFloat(logits[next.row * stride + next.target]);
  }
  for (;;) {
    RowInFlight after(next.row + gridDim.x, rows, targets);
    const T* const from = logits + next.row * stride;
    RunningSoftmax<T> running;
    const auto take = [&running](const Words& packed) {
      float values[V];
      packed.Unpack(values);
      running.Take(values);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int at = threadIdx.x + k * kThreads;
      if (at >= count) continue;
      out.Write(kept[k], at);
      if (next.counts()) kept[k] = Words::Load(from + at * V);
    }
    // Before the next pass writes that row.
    if (threadIdx.x == 0 && after.counts()) {
      after.target_logit = ToFloat(logits[after.row * stride + after.target]);
    }
#pragma unroll
    for (int j = 0; j < kStaged + kBehind; ++j) {
      const int at = first_staged + j * kThreads;
      if (j < kStaged) {
        if (at < count) {
          out.Write(staged[j * kThreads], at);
          if (next.counts()) {
            __pipeline_memcpy_async(staged + j * kThreads, from + at * V, sizeof(Words));
          }
        }
        __pipeline_commit();
      }
      if (j < kKept && next.counts() && threadIdx.x + j * kThreads < count) take(kept[j]);
      if (j < kBehind) continue;
      __pipeline_wait_prior(j < kStaged ? kBehind : kStaged + kBehind - 1 - j);
      if (next.counts() && at - kBehind * kThreads < count) {
        take(staged[(j - kBehind) * kThreads]);
      }
    }
    if (next.row >= rows) return;
    const float max = BlockReduce(running.max, MaxOp<float>{}, -INFINITY, shared);
    const float sum = BlockReduce(running.SumBelow(max), SumOp<float>{}, 0.0F, shared);
    if (threadIdx.x == 0) {
      row_loss[next.row] = next.counts() ? static_cast<double>(max) + logf(sum) -
                                               static_cast<double>(next.target_logit)
                                         : 0.0;
    }
    out = {logits + next.row * stride, next.counts(), next.target, max, 1.0F / sum};
    next = after;
  }
}

constexpr int kPipelineThreads = 1024;
constexpr int kPipelineKept = 6;
constexpr int kPipelineStaged = 15;

// Vectors that a row's pipeline can hold with so many bytes of shared memory.
std::int64_t PipelineVectors(int shared_bytes) {
  const int staged =
      std::min(kPipelineStaged * kPipelineThreads, shared_bytes / static_cast<int>(sizeof(Words)));
  return std::int64_t{kPipelineKept} * kPipelineThreads + staged;
}

template <typename T, int V>
cudaError_t LaunchRowPipeline(cudaStream_t stream, const Matrix& logits,
                              const std::int32_t* targets, double* scratch) {
  const auto kernel = RowPipelineKernel<T, V, kPipelineThreads, kPipelineKept, kPipelineStaged>;
  const std::int64_t staged =
      std::max<std::int64_t>(0, logits.cols / V - std::int64_t{kPipelineKept} * kPipelineThreads);
  const int bytes = static_cast<int>(staged * static_cast<std::int64_t>(sizeof(Words)));
  if (cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
      error != cudaSuccess) {
    return error;
  }
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(logits.rows, kNumMultiprocessors));
  kernel<<<blocks, kPipelineThreads, static_cast<std::size_t>(bytes), stream>>>(
      Data<T>(logits), logits.stride, static_cast<int>(logits.cols), targets, logits.rows, scratch);
  return cudaGetLastError();
}

// What one block can have on this device besides the kernel's own arrays.
cudaError_t SharedBytes(int& bytes) {
  constexpr int kReserved = 1024;
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const cudaError_t error =
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  bytes -= kReserved;
  return error;
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
  int shared_bytes = 0;
  if (cudaError_t error = SharedBytes(shared_bytes); error != cudaSuccess) return error;
  const cudaError_t error = WithType(logits.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kV = 16 / static_cast<int>(sizeof(T));
    VectorWidth width(kV);
    width.Take(logits);
    if (width.elements() != kV) {
      return LaunchCrossEntropy<T, 1, 512, 6>(stream, logits, targets, loss_only, scratch, 0);
    }
    // Long: the rows that pairs of blocks would be at are together more than the L2 cache holds.
    constexpr std::int64_t kLongRowBytes = 160 << 10;
    if (logits.cols * static_cast<std::int64_t>(sizeof(T)) <= kLongRowBytes) {
      return LaunchCrossEntropy<T, kV, 512, 8>(stream, logits, targets, loss_only, scratch, 0);
    }
    if constexpr (kV == 8) {
      if (!loss_only && logits.cols / kV <= PipelineVectors(shared_bytes)) {
        return LaunchRowPipeline<T, kV>(stream, logits, targets, scratch);
      }
    }
    return LaunchCrossEntropy<T, kV, 1024, 6>(stream, logits, targets, loss_only, scratch,
                                              shared_bytes);
  });
  if (error != cudaSuccess) return error;
  FinishLossKernel<<<1, kFinishThreads, 0, stream>>>(scratch, targets, logits.rows, stats);
  return cudaGetLastError();
}

}  // namespace fsdp::kernels

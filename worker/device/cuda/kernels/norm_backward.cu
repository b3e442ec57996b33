// The gradient of RMSNorm and LayerNorm fused with the residual gradient. Each operand is read
// once; rows too odd or too long for that take the plain kernel. Parameter gradients: partial sums
// per block, then the blocks in order.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/launch_overlap.cuh"

namespace fsdp::kernels {
namespace {

struct BackwardParams {
  const void* dy;
  const void* x;
  const void* residual;  // may be null
  void* dx;
  void* y;  // the forward's output, written again; may be null
  const void* weight;
  const void* bias;  // read for y, by LayerNorm
  const float* mean;
  const float* rstd;
  std::int64_t dy_stride, x_stride, residual_stride, dx_stride, y_stride;
  std::int64_t rows;
  int cols;
  float* d_weight_partial;  // [gridDim.x, cols]
  float* d_bias_partial;
};

inline constexpr int kPlainThreads = 256;

__device__ __forceinline__ float2 Sum2(float2 a, float2 b) {
  return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float2 WarpSum2(float2 value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    value = Sum2(value, make_float2(__shfl_xor_sync(0xffffffffU, value.x, offset),
                                    __shfl_xor_sync(0xffffffffU, value.y, offset)));
  }
  return value;
}

// Two sums at once over kWarps neighbouring warps, which are group `group` of the block and the
// only ones that wait. `shared` holds kWarps values of the group.
template <int kWarps>
__device__ __forceinline__ float2 GroupSum2(float2 value, int group, float2* shared) {
  value = WarpSum2(value);
  if constexpr (kWarps == 1) return value;
  const auto barrier = [group] {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kWarps * 32) : "memory");
  };
  barrier();  // the last sum was read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32 % kWarps] = value;
  barrier();
  float2 total = shared[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) total = Sum2(total, shared[warp]);
  return total;
}

// One block fills a multiprocessor: 512 threads of up to 128 registers.
inline constexpr int kBackwardThreads = 512;
inline constexpr int kBackwardVectors = 2;  // of a thread; more would not fit its registers

template <typename T, int V>
struct BackwardRow {
  Words dy[kBackwardVectors], x[kBackwardVectors], residual[kBackwardVectors];
  float mean = 0, rstd = 0;

  __device__ __forceinline__ void Load(const BackwardParams& p, std::int64_t row, int lane,
                                       int row_threads) {
    rstd = p.rstd[row];
    if (p.mean != nullptr) mean = p.mean[row];
#pragma unroll
    for (int k = 0; k < kBackwardVectors; ++k) {
      const int at = (lane + k * row_threads) * V;
      if (at >= p.cols) continue;
      dy[k] = Words::Load(static_cast<const T*>(p.dy) + row * p.dy_stride + at);
      x[k] = Words::Load(static_cast<const T*>(p.x) + row * p.x_stride + at);
      if (p.residual != nullptr) {
        residual[k] = Words::Load(static_cast<const T*>(p.residual) + row * p.residual_stride + at);
      }
    }
  }
};

// kWarps warps own a row at a time, and a block holds several such groups. The next row is on its
// way while this one is reduced. A thread's columns never change: their parameter gradients stay in
// registers until the groups of a block are added up, in order.
template <typename T, int V, int kWarps, bool kLayer>
__global__ void __launch_bounds__(kBackwardThreads, 1) NormBackwardKernel(const BackwardParams p) {
  constexpr int kVectors = kBackwardVectors;
  constexpr int kRowThreads = kWarps * 32;
  constexpr int kGroups = kBackwardThreads / kRowThreads;
  __shared__ float2 shared[kGroups][kWarps];
  extern __shared__ __align__(16) float parameter_sums[];  // [kLayer ? 2 : 1][kGroups][cols]
  const int group = threadIdx.x / kRowThreads;
  const int lane = threadIdx.x % kRowThreads;
  float d_weight[kVectors][V] = {};
  float d_bias[kLayer ? kVectors : 1][V] = {};
  Words weight[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = (lane + k * kRowThreads) * V;
    if (at < p.cols) weight[k] = Words::Load(static_cast<const T*>(p.weight) + at);
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kGroups;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kGroups + group;
  BackwardRow<T, V> next;
  if (row < p.rows) next.Load(p, row, lane, kRowThreads);
  for (; row - group < p.rows; row += step) {
    if (row >= p.rows) {
      // All groups pass their barriers equally often: compute-sanitizer's racecheck takes a group
      // that is ahead at the barrier of the block for one that has passed it.
      GroupSum2<kWarps>(make_float2(0, 0), group, shared[group]);
      break;
    }
    const BackwardRow<T, V> now = next;
    if (row + step < p.rows) next.Load(p, row + step, lane, kRowThreads);
    const float rstd = now.rstd;
    const float mean = kLayer ? now.mean : 0;
    float2 sums = make_float2(0, 0);  // of g * xhat, of g
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if ((lane + k * kRowThreads) * V >= p.cols) continue;
      float dy[V];
      float x[V];
      float w[V];
      now.dy[k].Unpack(dy);
      now.x[k].Unpack(x);
      weight[k].Unpack(w);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float xhat = (x[i] - mean) * rstd;
        const float g = dy[i] * w[i];
        sums.x += g * xhat;
        d_weight[k][i] += dy[i] * xhat;
        if constexpr (kLayer) {
          sums.y += g;
          d_bias[k][i] += dy[i];
        }
      }
    }
    sums = GroupSum2<kWarps>(sums, group, shared[group]);
    // dx = rstd (g - mean(g) - xhat mean(g xhat)), as one multiple of g, one of x - mean, a
    // constant.
    const float along = -rstd * rstd * (sums.x / p.cols);
    const float centre = kLayer ? -rstd * (sums.y / p.cols) : 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int at = (lane + k * kRowThreads) * V;
      if (at >= p.cols) continue;
      float dy[V];
      float x[V];
      float w[V];
      float out[V];
      now.dy[k].Unpack(dy);
      now.x[k].Unpack(x);
      weight[k].Unpack(w);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        out[i] = rstd * (dy[i] * w[i]) + (along * (x[i] - mean) + centre);
      }
      if (p.residual != nullptr) {
        float residual[V];
        now.residual[k].Unpack(residual);
#pragma unroll
        for (int i = 0; i < V; ++i) out[i] += residual[i];
      }
      StoreFloats<T, V>(static_cast<T*>(p.dx) + row * p.dx_stride + at, out);
      if (p.y == nullptr) continue;
      float bias[V] = {};
      if constexpr (kLayer) Words::Load(static_cast<const T*>(p.bias) + at).Unpack(bias);
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] = Normalized(x[i], mean, rstd, w[i], bias[i]);
      StoreFloats<T, V>(static_cast<T*>(p.y) + row * p.y_stride + at, out);
    }
  }
  // From here on the kernel that sums the blocks may be launched; it waits for this one's end.
  LetNextKernelStart();
  float* const bias_sums = parameter_sums + kGroups * p.cols;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = (lane + k * kRowThreads) * V;
    if (at >= p.cols) continue;
    StoreFloats<float, V>(parameter_sums + group * p.cols + at, d_weight[k]);
    if constexpr (kLayer) StoreFloats<float, V>(bias_sums + group * p.cols + at, d_bias[k]);
  }
  __syncthreads();
  const std::int64_t to = static_cast<std::int64_t>(blockIdx.x) * p.cols;
  for (int c = threadIdx.x; c < p.cols; c += kBackwardThreads) {
    float weight_total = 0;
    float bias_total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      weight_total += parameter_sums[g * p.cols + c];
      if constexpr (kLayer) bias_total += bias_sums[g * p.cols + c];
    }
    p.d_weight_partial[to + c] = weight_total;
    if constexpr (kLayer) p.d_bias_partial[to + c] = bias_total;
  }
}

template <typename T, bool kLayer>
__global__ void PlainNormBackwardKernel(const BackwardParams p) {
  __shared__ float2 shared[kPlainThreads / 32];
  const std::int64_t partial = static_cast<std::int64_t>(blockIdx.x) * p.cols;
  const T* weight = static_cast<const T*>(p.weight);
  for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
    p.d_weight_partial[partial + c] = 0;
    if constexpr (kLayer) p.d_bias_partial[partial + c] = 0;
  }
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* dy = static_cast<const T*>(p.dy) + row * p.dy_stride;
    const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
    const T* residual =
        p.residual ? static_cast<const T*>(p.residual) + row * p.residual_stride : nullptr;
    T* dx = static_cast<T*>(p.dx) + row * p.dx_stride;
    const float rstd = p.rstd[row];
    const float mean = kLayer ? p.mean[row] : 0;
    float2 sums = make_float2(0, 0);
    for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
      const float xhat = (ToFloat(x[c]) - mean) * rstd;
      const float g = ToFloat(dy[c]) * ToFloat(weight[c]);
      sums.x += g * xhat;
      sums.y += g;
      p.d_weight_partial[partial + c] += ToFloat(dy[c]) * xhat;
      if constexpr (kLayer) p.d_bias_partial[partial + c] += ToFloat(dy[c]);
    }
    sums = GroupSum2<kPlainThreads / 32>(sums, 0, shared);
    const float along = sums.x / p.cols;
    const float centre = kLayer ? sums.y / p.cols : 0;
    for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
      const float xhat = (ToFloat(x[c]) - mean) * rstd;
      const float g = ToFloat(dy[c]) * ToFloat(weight[c]);
      float out = rstd * (g - centre - xhat * along);
      if (residual != nullptr) out += ToFloat(residual[c]);
      const float x_value = ToFloat(x[c]);
      dx[c] = FromFloat<T>(out);
      if (p.y == nullptr) continue;
      float bias = 0;
      if constexpr (kLayer) bias = ToFloat(static_cast<const T*>(p.bias)[c]);
      static_cast<T*>(p.y)[row * p.y_stride + c] =
          FromFloat<T>(Normalized(x_value, mean, rstd, ToFloat(weight[c]), bias));
    }
  }
}

template <typename T, int V, bool kLayer>
cudaError_t LaunchBackward(cudaStream_t stream, const BackwardParams& p, unsigned blocks) {
  const std::int64_t warps = CeilDiv(p.cols / V, kBackwardVectors * 32);
  // At most 64 KB: a block's threads hold as many sums in their registers.
  const auto launch = [&](auto kernel, int row_warps) {
    const std::size_t groups = kBackwardThreads / (row_warps * 32);
    const std::size_t shared_bytes = (kLayer ? 2 : 1) * groups * p.cols * sizeof(float);
    if (cudaError_t error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
        error != cudaSuccess) {
      return error;
    }
    kernel<<<blocks, kBackwardThreads, shared_bytes, stream>>>(p);
    return cudaGetLastError();
  };
  if (warps <= 2) return launch(NormBackwardKernel<T, V, 2, kLayer>, 2);
  if (warps <= 4) return launch(NormBackwardKernel<T, V, 4, kLayer>, 4);
  if (warps <= 8) return launch(NormBackwardKernel<T, V, 8, kLayer>, 8);
  return launch(NormBackwardKernel<T, V, 16, kLayer>, 16);
}

// One per multiprocessor, so that the partial sums stay few.
std::int64_t BackwardBlocks(std::int64_t rows) {
  return std::clamp<std::int64_t>(kNumMultiprocessors, 1, std::max<std::int64_t>(1, rows));
}

template <typename T, bool kLayer>
cudaError_t BackwardOf(cudaStream_t stream, const NormBackwardArgs& args, const BackwardParams& p,
                       unsigned blocks) {
  constexpr int kV = 16 / static_cast<int>(sizeof(T));
  VectorWidth width(kV);
  for (const Matrix* m : {&args.dy, &args.x, &args.residual, &args.dx, &args.y}) {
    width.Take(*m);
  }
  width.Take(p.weight, sizeof(T));
  if (p.y != nullptr && kLayer) width.Take(p.bias, sizeof(T));
  if (width.elements() == kV && p.cols / kV <= kBackwardThreads * kBackwardVectors) {
    return LaunchBackward<T, kV, kLayer>(stream, p, blocks);
  }
  PlainNormBackwardKernel<T, kLayer><<<blocks, kPlainThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

std::size_t NormBackwardScratchFloats(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(2 * BackwardBlocks(rows) * cols);
}

cudaError_t NormBackward(cudaStream_t stream, const NormBackwardArgs& args) {
  const std::int64_t blocks = args.x.rows == 0 ? 0 : BackwardBlocks(args.x.rows);
  float* d_bias_partial = args.scratch + blocks * args.x.cols;
  if (blocks > 0) {
    const BackwardParams p{args.dy.data,
                           args.x.data,
                           args.residual.empty() ? nullptr : args.residual.data,
                           args.dx.data,
                           args.y.data,
                           args.weight.data,
                           args.bias.data,
                           Data<const float>(args.mean),
                           Data<const float>(args.rstd),
                           args.dy.stride,
                           args.x.stride,
                           args.residual.stride,
                           args.dx.stride,
                           args.y.stride,
                           args.x.rows,
                           static_cast<int>(args.x.cols),
                           args.scratch,
                           d_bias_partial};
    const cudaError_t error = WithType(args.x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      const auto grid = static_cast<unsigned>(blocks);
      return args.layer ? BackwardOf<T, true>(stream, args, p, grid)
                        : BackwardOf<T, false>(stream, args, p, grid);
    });
    if (error != cudaSuccess) return error;
  }
  if (!args.layer || args.d_weight.dtype == args.d_bias.dtype) {
    return SumPartials(stream, args.scratch, blocks, args.d_weight, args.accumulate,
                       args.layer ? d_bias_partial : nullptr, args.d_bias);
  }
  if (cudaError_t error =
          SumPartials(stream, args.scratch, blocks, args.d_weight, args.accumulate, nullptr, {});
      error != cudaSuccess) {
    return error;
  }
  return SumPartials(stream, d_bias_partial, blocks, args.d_bias, args.accumulate, nullptr, {});
}

}  // namespace fsdp::kernels

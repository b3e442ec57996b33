// RMSNorm and LayerNorm fused with the residual addition. A row stays in registers between the
// statistics and the result, so each operand is read once; rows too odd or too long for that take
// the plain kernel, which reads them again.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"

namespace fsdp::kernels {
namespace {

struct ForwardParams {
  const void* x;
  const void* delta;  // may be null
  void* sum;
  void* y;
  const void* weight;
  const void* bias;
  float* mean;
  float* rstd;
  std::int64_t x_stride, delta_stride, sum_stride, y_stride;
  std::int64_t rows;
  int cols;
  float eps;
};

inline constexpr int kPlainThreads = 256;

// Sums over one row's threads: a warp, or the block.
template <bool kWarpRow>
__device__ __forceinline__ float RowSum(float value, float* shared) {
  if constexpr (kWarpRow) return WarpReduce(value, SumOp<float>{});
  return BlockReduce(value, SumOp<float>{}, 0.0F, shared);
}

template <typename T, int V, int kVectors, bool kWarpRow, bool kLayer>
__global__ void NormForwardKernel(const ForwardParams p) {
  __shared__ float shared[32];
  const int lane = kWarpRow ? threadIdx.x % 32 : threadIdx.x;
  const int row_threads = kWarpRow ? 32 : blockDim.x;
  const std::int64_t row =
      kWarpRow ? static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32
               : blockIdx.x;
  if (row >= p.rows) return;  // whole warps only: kWarpRow has no block-wide sum
  const int num_vectors = p.cols / V;
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;

  Pack<T, V> value[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = lane + k * row_threads;
    if (at < num_vectors) value[k] = Pack<T, V>::Load(x + at * V);
  }
  if (p.delta != nullptr) {
    const T* delta = static_cast<const T*>(p.delta) + row * p.delta_stride;
    T* sum = static_cast<T*>(p.sum) + row * p.sum_stride;
    Pack<T, V> added[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int at = lane + k * row_threads;
      if (at < num_vectors) added[k] = Pack<T, V>::Load(delta + at * V);
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int at = lane + k * row_threads;
      if (at >= num_vectors) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        value[k].at[i] = FromFloat<T>(ToFloat(value[k].at[i]) + ToFloat(added[k].at[i]));
      }
      value[k].Store(sum + at * V);
    }
  }

  float mean = 0;
  if constexpr (kLayer) {
    float total = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * row_threads >= num_vectors) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) total += ToFloat(value[k].at[i]);
    }
    mean = RowSum<kWarpRow>(total, shared) / p.cols;
  }
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (lane + k * row_threads >= num_vectors) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float centred = ToFloat(value[k].at[i]) - mean;
      squares += centred * centred;
    }
  }
  squares = RowSum<kWarpRow>(squares, shared);
  const float rstd = 1.0F / sqrtf(squares / p.cols + p.eps);
  if (lane == 0) {
    p.rstd[row] = rstd;
    if constexpr (kLayer) p.mean[row] = mean;
  }

  T* y = static_cast<T*>(p.y) + row * p.y_stride;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = lane + k * row_threads;
    if (at >= num_vectors) continue;
    float weight[V];
    LoadFloats<T, V>(static_cast<const T*>(p.weight) + at * V, weight);
    float bias[V] = {};
    if constexpr (kLayer) LoadFloats<T, V>(static_cast<const T*>(p.bias) + at * V, bias);
    float out[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      out[i] = Normalized(ToFloat(value[k].at[i]), mean, rstd, weight[i], bias[i]);
    }
    StoreFloats<T, V>(y + at * V, out);
  }
}

template <typename T, bool kLayer>
__global__ void PlainNormForwardKernel(const ForwardParams p) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  if (p.delta != nullptr) {
    const T* delta = static_cast<const T*>(p.delta) + row * p.delta_stride;
    T* sum = static_cast<T*>(p.sum) + row * p.sum_stride;
    for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
      sum[c] = FromFloat<T>(ToFloat(x[c]) + ToFloat(delta[c]));
    }
    x = sum;  // each thread reads back only what it wrote
  }
  float mean = 0;
  if constexpr (kLayer) {
    float total = 0;
    for (int c = threadIdx.x; c < p.cols; c += blockDim.x) total += ToFloat(x[c]);
    mean = RowSum<false>(total, shared) / p.cols;
  }
  float squares = 0;
  for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
    const float centred = ToFloat(x[c]) - mean;
    squares += centred * centred;
  }
  squares = RowSum<false>(squares, shared);
  const float rstd = 1.0F / sqrtf(squares / p.cols + p.eps);
  if (threadIdx.x == 0) {
    p.rstd[row] = rstd;
    if constexpr (kLayer) p.mean[row] = mean;
  }
  const T* weight = static_cast<const T*>(p.weight);
  T* y = static_cast<T*>(p.y) + row * p.y_stride;
  for (int c = threadIdx.x; c < p.cols; c += blockDim.x) {
    float bias = 0;
    if constexpr (kLayer) bias = ToFloat(static_cast<const T*>(p.bias)[c]);
    y[c] = FromFloat<T>(Normalized(ToFloat(x[c]), mean, rstd, ToFloat(weight[c]), bias));
  }
}

// Threads of a block that owns a row of `num_vectors`, aiming at `per_thread` vectors each.
int RowThreads(std::int64_t num_vectors, int per_thread) {
  const std::int64_t wanted = CeilDiv(num_vectors, per_thread);
  return static_cast<int>(std::clamp<std::int64_t>(CeilDiv(wanted, 32) * 32, 64, 1024));
}

template <typename T, int V, bool kLayer>
cudaError_t LaunchForward(cudaStream_t stream, const ForwardParams& p) {
  const auto rows = static_cast<unsigned>(p.rows);
  const std::int64_t num_vectors = p.cols / V;
  constexpr int kWarps = 4;
  const unsigned warp_blocks = static_cast<unsigned>(CeilDiv(p.rows, kWarps));
  if (num_vectors <= 64) {
    NormForwardKernel<T, V, 2, true, kLayer><<<warp_blocks, kWarps * 32, 0, stream>>>(p);
  } else if (num_vectors <= 128) {
    NormForwardKernel<T, V, 4, true, kLayer><<<warp_blocks, kWarps * 32, 0, stream>>>(p);
  } else if (num_vectors <= 256) {
    NormForwardKernel<T, V, 8, true, kLayer><<<warp_blocks, kWarps * 32, 0, stream>>>(p);
  } else {
    NormForwardKernel<T, V, 4, false, kLayer><<<rows, RowThreads(num_vectors, 4), 0, stream>>>(p);
  }
  return cudaGetLastError();
}

template <typename T, bool kLayer>
cudaError_t ForwardOf(cudaStream_t stream, const NormForwardArgs& args, const ForwardParams& p) {
  constexpr int kV = 16 / static_cast<int>(sizeof(T));
  VectorWidth width(kV);
  for (const Matrix* m : {&args.x, &args.delta, &args.sum, &args.y}) width.Take(*m);
  width.Take(p.weight, sizeof(T));
  width.Take(p.bias, sizeof(T));
  if (width.elements() == kV && p.cols / kV <= 4 * 1024) {
    return LaunchForward<T, kV, kLayer>(stream, p);
  }
  PlainNormForwardKernel<T, kLayer><<<static_cast<unsigned>(p.rows), kPlainThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t NormForward(cudaStream_t stream, const NormForwardArgs& args) {
  if (args.x.rows == 0) return cudaSuccess;
  const ForwardParams p{args.x.data,
                        args.delta.empty() ? nullptr : args.delta.data,
                        args.sum.data,
                        args.y.data,
                        args.weight.data,
                        args.bias.data,
                        Data<float>(args.mean),
                        Data<float>(args.rstd),
                        args.x.stride,
                        args.delta.stride,
                        args.sum.stride,
                        args.y.stride,
                        args.x.rows,
                        static_cast<int>(args.x.cols),
                        args.eps};
  return WithType(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return args.layer ? ForwardOf<T, true>(stream, args, p) : ForwardOf<T, false>(stream, args, p);
  });
}

}  // namespace fsdp::kernels

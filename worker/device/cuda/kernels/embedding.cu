// Token and position embeddings. The backward pass is deterministic without a sort: the block of a
// token's first occurrence adds up the rows of all of them in order.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 256;

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    EmbeddingForwardKernel(const std::int32_t* tokens, const T* table, std::int64_t table_stride,
                           const T* positions, std::int64_t position_stride, std::int64_t seq,
                           T* out, std::int64_t out_stride, std::int64_t cols) {
  const std::int64_t t = blockIdx.x;
  const T* row = table + static_cast<std::int64_t>(tokens[t]) * table_stride;
  const T* position = positions == nullptr ? nullptr : positions + t % seq * position_stride;
  for (std::int64_t c = threadIdx.x * V; c < cols; c += kThreads * V) {
    auto value = Pack<T, V>::Load(row + c);
    if (position != nullptr) {
      const auto add = Pack<T, V>::Load(position + c);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        value.at[i] = FromFloat<T>(ToFloat(value.at[i]) + ToFloat(add.at[i]));
      }
    }
    value.Store(out + t * out_stride + c);
  }
}

// Block t works only if token t does not occur before t; then it adds dout's rows t' >= t of that
// token, in order. blockIdx.y owns kThreads * V columns.
template <typename T, typename Out, int V>
__global__ void __launch_bounds__(kThreads)
    EmbeddingBackwardKernel(const std::int32_t* tokens, std::int64_t num_tokens, const T* dout,
                            std::int64_t dout_stride, Out* d_table, std::int64_t table_stride,
                            std::int64_t cols) {
  constexpr int kChunk = kThreads * 4;
  __shared__ std::int32_t matches[kThreads];
  __shared__ int warp_matches[kThreads / 32];
  const std::int64_t t = blockIdx.x;
  const std::int32_t token = tokens[t];

  for (std::int64_t begin = 0; begin < t; begin += kChunk) {
    bool found = false;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t at = begin + k * kThreads + threadIdx.x;
      if (at < t) found |= tokens[at] == token;
    }
    if (__syncthreads_or(found)) return;
  }

  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  float sum[V] = {};
  for (std::int64_t begin = t; begin < num_tokens; begin += kThreads) {
    const std::int64_t at = begin + threadIdx.x;
    const bool match = at < num_tokens && tokens[at] == token;
    const unsigned ballot = __ballot_sync(0xffffffffU, match);
    __syncthreads();  // the last chunk's list was read
    if (lane == 0) warp_matches[warp] = __popc(ballot);
    __syncthreads();
    int before = 0;
    int total = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      before += w < warp ? warp_matches[w] : 0;
      total += warp_matches[w];
    }
    if (total == 0) continue;
    if (match) {
      matches[before + __popc(ballot & ((1U << lane) - 1))] = static_cast<std::int32_t>(at - begin);
    }
    __syncthreads();
    if (col >= cols) continue;
#pragma unroll 4
    for (int m = 0; m < total; ++m) {
      float value[V];
      LoadFloats<T, V>(dout + (begin + matches[m]) * dout_stride + col, value);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += value[i];
    }
  }
  if (col >= cols) return;
  Out* to = d_table + static_cast<std::int64_t>(token) * table_stride + col;
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = FromFloat<Out>(ToFloat(to[i]) + sum[i]);
}

template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads)
    PositionBackwardKernel(const T* dout, std::int64_t dout_stride, std::int64_t rows,
                           std::int64_t seq, Out* d_positions, std::int64_t stride,
                           std::int64_t cols, bool accumulate) {
  const std::int64_t s = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < cols; c += kThreads) {
    float sum = accumulate ? ToFloat(d_positions[s * stride + c]) : 0;
    for (std::int64_t t = s; s < seq && t < rows; t += seq)
      sum += ToFloat(dout[t * dout_stride + c]);
    d_positions[s * stride + c] = FromFloat<Out>(sum);
  }
}

}  // namespace

cudaError_t EmbeddingForward(cudaStream_t stream, const std::int32_t* tokens, const Matrix& table,
                             const Matrix& positions, std::int64_t seq, const Matrix& out) {
  if (out.rows == 0) return cudaSuccess;
  return WithType(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kV = 16 / static_cast<int>(sizeof(T));
    VectorWidth width(kV);
    for (const Matrix* m : {&table, &positions, &out}) width.Take(*m);
    const auto kernel =
        width.elements() == kV ? EmbeddingForwardKernel<T, kV> : EmbeddingForwardKernel<T, 1>;
    kernel<<<static_cast<unsigned>(out.rows), kThreads, 0, stream>>>(
        tokens, Data<const T>(table), table.stride, Data<const T>(positions), positions.stride, seq,
        Data<T>(out), out.stride, out.cols);
    return cudaGetLastError();
  });
}

cudaError_t EmbeddingBackward(cudaStream_t stream, const std::int32_t* tokens, const Matrix& dout,
                              const Matrix& d_table, bool accumulate) {
  if (!accumulate) {
    const std::size_t element = SizeOf(d_table.dtype);
    if (cudaError_t error =
            cudaMemset2DAsync(d_table.data, d_table.stride * element, 0, d_table.cols * element,
                              static_cast<std::size_t>(d_table.rows), stream);
        error != cudaSuccess) {
      return error;
    }
  }
  if (dout.rows == 0) return cudaSuccess;
  return WithType(dout.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithType(d_table.dtype, [&](auto out_tag) {
      using Out = typename decltype(out_tag)::Type;
      constexpr int kV = 16 / static_cast<int>(sizeof(T));
      VectorWidth width(kV);
      width.Take(dout);
      const bool wide = width.elements() == kV;
      const auto kernel =
          wide ? EmbeddingBackwardKernel<T, Out, kV> : EmbeddingBackwardKernel<T, Out, 1>;
      const dim3 grid(static_cast<unsigned>(dout.rows),
                      static_cast<unsigned>(CeilDiv(dout.cols, kThreads * (wide ? kV : 1))));
      kernel<<<grid, kThreads, 0, stream>>>(tokens, dout.rows, Data<const T>(dout), dout.stride,
                                            Data<Out>(d_table), d_table.stride, dout.cols);
      return cudaGetLastError();
    });
  });
}

cudaError_t PositionBackward(cudaStream_t stream, const Matrix& dout, std::int64_t seq,
                             const Matrix& d_positions, bool accumulate) {
  if (seq == 0) return cudaSuccess;
  return WithType(dout.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithType(d_positions.dtype, [&](auto out_tag) {
      using Out = typename decltype(out_tag)::Type;
      PositionBackwardKernel<T, Out>
          <<<static_cast<unsigned>(d_positions.rows), kThreads, 0, stream>>>(
              Data<const T>(dout), dout.stride, dout.rows, seq, Data<Out>(d_positions),
              d_positions.stride, dout.cols, accumulate);
      return cudaGetLastError();
    });
  });
}

}  // namespace fsdp::kernels

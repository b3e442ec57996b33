// Token and position embeddings. The backward pass is deterministic without a sort or scratch: each
// block owns some rows of the table, lists the tokens that fall on them in order, and writes each
// of its rows once, zeros included.

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
                           const std::int32_t* position_ids, T* out, std::int64_t out_stride,
                           std::int64_t cols) {
  const std::int64_t t = blockIdx.x;
  const T* row = table + static_cast<std::int64_t>(tokens[t]) * table_stride;
  const T* position = nullptr;
  if (positions != nullptr) {
    const std::int64_t at = position_ids == nullptr ? t % seq : position_ids[t];
    position = positions + at * position_stride;
  }
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

inline constexpr int kListed = 4096;     // tokens that a block holds at a time
inline constexpr int kMaxOwned = 1024;   // rows of a block
inline constexpr int kWarpTokens = 128;  // that a warp looks at in a go

template <typename T>
struct EmbeddingBackwardParams {
  const std::int32_t* tokens;
  std::int64_t num_tokens;
  const T* dout;
  std::int64_t dout_stride;
  void* d_table;
  std::int64_t table_stride, vocab, cols;
  FastDivide blocks;  // gridDim.x
  bool accumulate;
};

// A block owns the rows blockIdx.x, blockIdx.x + gridDim.x, ...: common tokens, whose ids lie close
// together, fall to different blocks. Its tokens, in order:
struct TokenList {
  std::int32_t at[kListed];      // position in the batch
  std::uint16_t owned[kListed];  // which of the block's rows
  bool hit[kMaxOwned];
  int warp_totals[kThreads / 32];
};

// Lists tokens from `next` on until the end or until the list is full; advances `next`.
template <typename T>
__device__ __forceinline__ int ListTokens(const EmbeddingBackwardParams<T>& p, TokenList& list,
                                          std::int64_t& next) {
  constexpr int kGo = kWarpTokens * kThreads / 32;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < kMaxOwned; i += kThreads) list.hit[i] = false;
  int count = 0;
  for (; next < p.num_tokens && count + kGo <= kListed; next += kGo) {
    std::uint32_t owned[kWarpTokens / 32];
    unsigned ballots[kWarpTokens / 32];
    int total = 0;
#pragma unroll
    for (int k = 0; k < kWarpTokens / 32; ++k) {
      const std::int64_t t = next + warp * kWarpTokens + k * 32 + lane;
      const std::uint32_t token = t < p.num_tokens ? p.tokens[t] : 0;
      owned[k] = p.blocks.Quotient(token);
      const bool mine = t < p.num_tokens && token - owned[k] * p.blocks.divisor == blockIdx.x;
      ballots[k] = __ballot_sync(0xffffffffU, mine);
      total += __popc(ballots[k]);
    }
    __syncthreads();  // the last totals were read, and `hit` is clear
    if (lane == 0) list.warp_totals[warp] = total;
    __syncthreads();
    int to = count;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      to += w < warp ? list.warp_totals[w] : 0;
      count += list.warp_totals[w];
    }
#pragma unroll
    for (int k = 0; k < kWarpTokens / 32; ++k) {
      if ((ballots[k] >> lane & 1U) != 0) {
        const int slot = to + __popc(ballots[k] & ((1U << lane) - 1));
        list.at[slot] = static_cast<std::int32_t>(next + warp * kWarpTokens + k * 32 + lane);
        list.owned[slot] = static_cast<std::uint16_t>(owned[k]);
        list.hit[owned[k]] = true;
      }
      to += __popc(ballots[k]);
    }
  }
  __syncthreads();
  return count;
}

// sum += dout's rows of the listed tokens of row `owned`, in order. All threads of the block.
template <typename T, int V>
__device__ __forceinline__ void SumRows(const EmbeddingBackwardParams<T>& p, const TokenList& list,
                                        int count, int owned, std::int64_t col,
                                        std::int32_t* matches, int* warp_matches, float (&sum)[V]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int begin = 0; begin < count; begin += kThreads) {
    const int entry = begin + static_cast<int>(threadIdx.x);
    const bool match = entry < count && list.owned[entry] == owned;
    const unsigned ballot = __ballot_sync(0xffffffffU, match);
    __syncthreads();  // the last chunk's matches were read
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
    if (match) matches[before + __popc(ballot & ((1U << lane) - 1))] = list.at[entry];
    __syncthreads();
    if (col >= p.cols) continue;
#pragma unroll 8
    for (int m = 0; m < total; ++m) {
      float value[V];
      LoadFloats<T, V>(p.dout + matches[m] * p.dout_stride + col, value);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += value[i];
    }
  }
}

// blockIdx.y owns kThreads * V columns.
template <typename T, typename Out, int V>
__global__ void __launch_bounds__(kThreads)
    EmbeddingBackwardKernel(const EmbeddingBackwardParams<T> p) {
  __shared__ TokenList list;
  __shared__ std::int32_t matches[kThreads];
  __shared__ int warp_matches[kThreads / 32];
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  Out* const d_table = static_cast<Out*>(p.d_table);
  bool add = p.accumulate;
  std::int64_t next = 0;
  do {
    const int count = ListTokens(p, list, next);
    int owned = 0;
    for (std::int64_t row = blockIdx.x; row < p.vocab; row += gridDim.x, ++owned) {
      const bool hit = list.hit[owned];
      if (!hit && add) continue;
      float sum[V] = {};
      if (hit) SumRows<T, V>(p, list, count, owned, col, matches, warp_matches, sum);
      if (col >= p.cols) continue;
      Out* to = d_table + row * p.table_stride + col;
      if (add) {
        float before[V];
        LoadFloats<Out, V>(to, before);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += before[i];
      }
      StoreFloats<Out, V>(to, sum);
    }
    __syncthreads();  // the list was read
    add = true;       // the rows were written; what is left of the tokens comes on top
  } while (next < p.num_tokens);
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
                             const Matrix& positions, std::int64_t seq,
                             const std::int32_t* position_ids, const Matrix& out) {
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
        position_ids, Data<T>(out), out.stride, out.cols);
    return cudaGetLastError();
  });
}

cudaError_t EmbeddingBackward(cudaStream_t stream, const std::int32_t* tokens, const Matrix& dout,
                              const Matrix& d_table, bool accumulate) {
  if (d_table.rows == 0 || (dout.rows == 0 && accumulate)) return cudaSuccess;
  const std::int64_t blocks =
      std::clamp(CeilDiv(d_table.rows, kMaxOwned),
                 std::min<std::int64_t>(d_table.rows, kNumMultiprocessors * 8), d_table.rows);
  return WithType(dout.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithType(d_table.dtype, [&](auto out_tag) {
      using Out = typename decltype(out_tag)::Type;
      constexpr int kV = 16 / static_cast<int>(sizeof(T));
      VectorWidth width(kV);
      for (const Matrix* m : {&dout, &d_table}) width.Take(*m);
      const bool wide = width.elements() == kV;
      const auto kernel =
          wide ? EmbeddingBackwardKernel<T, Out, kV> : EmbeddingBackwardKernel<T, Out, 1>;
      const dim3 grid(static_cast<unsigned>(blocks),
                      static_cast<unsigned>(CeilDiv(dout.cols, kThreads * (wide ? kV : 1))));
      const EmbeddingBackwardParams<T> p{
          tokens,       dout.rows,    Data<const T>(dout),
          dout.stride,  d_table.data, d_table.stride,
          d_table.rows, dout.cols,    FastDivide(static_cast<std::uint32_t>(blocks)),
          accumulate};
      kernel<<<grid, kThreads, 0, stream>>>(p);
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

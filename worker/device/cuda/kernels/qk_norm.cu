// RMSNorm of query and key heads with rope in the same pass over memory. A warp owns a head of a
// token; a lane holds pairs (i, i + head_dim / 2), which rope turns together.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;

struct Params {
  void* qkv;
  void* raw;
  const void* q_weight;
  const void* k_weight;
  const float* cos;
  const float* sin;
  float* rstd;  // [heads, tokens]
  std::int64_t qkv_stride, raw_stride, cos_stride, sin_stride;
  std::int64_t tokens, seq;
  int num_heads, heads, half;
  float eps;
  float* d_q_partial;  // [gridDim.x, 2 half]
  float* d_k_partial;
};

// V neighbouring elements of each half of a head.
template <int V>
struct Pairs {
  float first[V], second[V];

  template <typename T>
  __device__ __forceinline__ static Pairs Load(const T* head, int half, int i) {
    Pairs pairs;
    LoadFloats<T, V>(head + i, pairs.first);
    LoadFloats<T, V>(head + half + i, pairs.second);
    return pairs;
  }
  template <typename T>
  __device__ __forceinline__ void Store(T* head, int half, int i) const {
    StoreFloats<T, V>(head + i, first);
    StoreFloats<T, V>(head + half + i, second);
  }
};

// Turns by the angle of `position`, or back with sign = -1.
template <int V>
__device__ __forceinline__ void Rotate(const Params& p, std::int64_t position, int i, float sign,
                                       Pairs<V>& x) {
  float cos[V];
  float sin[V];
  LoadFloats<float, V>(p.cos + position * p.cos_stride + i, cos);
  LoadFloats<float, V>(p.sin + position * p.sin_stride + i, sin);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float a = x.first[v];
    const float b = x.second[v];
    x.first[v] = a * cos[v] - b * sign * sin[v];
    x.second[v] = b * cos[v] + a * sign * sin[v];
  }
}

// kSteps x 32 lanes x V pairs cover half a head.
template <typename T, int V, int kSteps>
__global__ void __launch_bounds__(kThreads) QkNormRopeKernel(const Params p) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (item >= p.tokens * p.heads) return;
  const std::int64_t token = item / p.heads;
  const int head = static_cast<int>(item - token * p.heads);
  const int lane = static_cast<int>(threadIdx.x % 32) * V;
  T* const x = static_cast<T*>(p.qkv) + token * p.qkv_stride + head * 2 * p.half;
  T* const raw = static_cast<T*>(p.raw) + token * p.raw_stride + head * 2 * p.half;
  const T* const weight = static_cast<const T*>(head < p.num_heads ? p.q_weight : p.k_weight);
  Pairs<V> pairs[kSteps];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int i = lane + k * 32 * V;
    if (i >= p.half) continue;
    pairs[k] = Pairs<V>::Load(x, p.half, i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      squares += pairs[k].first[v] * pairs[k].first[v] + pairs[k].second[v] * pairs[k].second[v];
    }
  }
  squares = WarpReduce(squares, SumOp<float>{});
  const float rstd = 1.0F / sqrtf(squares / static_cast<float>(2 * p.half) + p.eps);
  if (lane == 0) p.rstd[head * p.tokens + token] = rstd;
  const std::int64_t position = token % p.seq;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int i = lane + k * 32 * V;
    if (i >= p.half) continue;
    pairs[k].Store(raw, p.half, i);
    const Pairs<V> w = Pairs<V>::Load(weight, p.half, i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      pairs[k].first[v] *= rstd * w.first[v];
      pairs[k].second[v] *= rstd * w.second[v];
    }
    Rotate(p, position, i, 1.0F, pairs[k]);
    pairs[k].Store(x, p.half, i);
  }
}

// Blocks take tokens in turn, their warps the token's heads. Sums of weight gradients stay in
// registers, are added up over the warps in order, and go to the block's row of the partial sums.
template <typename T, int V, int kSteps>
__global__ void __launch_bounds__(kThreads) QkNormRopeBackwardKernel(const Params p) {
  extern __shared__ float sums[];  // [kWarps, 2 half]
  const int warp = threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32) * V;
  Pairs<V> d_q_weight[kSteps] = {};
  Pairs<V> d_k_weight[kSteps] = {};
  for (std::int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    const std::int64_t position = token % p.seq;
    for (int head = warp; head < p.heads; head += kWarps) {
      const bool query = head < p.num_heads;
      T* const dx = static_cast<T*>(p.qkv) + token * p.qkv_stride + head * 2 * p.half;
      const T* const raw = static_cast<const T*>(p.raw) + token * p.raw_stride + head * 2 * p.half;
      const T* const weight = static_cast<const T*>(query ? p.q_weight : p.k_weight);
      const float rstd = p.rstd[head * p.tokens + token];
      Pairs<V> g[kSteps];
      Pairs<V> xhat[kSteps];
      float along = 0;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const int i = lane + k * 32 * V;
        if (i >= p.half) continue;
        g[k] = Pairs<V>::Load(dx, p.half, i);
        Rotate(p, position, i, -1.0F, g[k]);
        xhat[k] = Pairs<V>::Load(raw, p.half, i);
        const Pairs<V> w = Pairs<V>::Load(weight, p.half, i);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          xhat[k].first[v] *= rstd;
          xhat[k].second[v] *= rstd;
          const float first = g[k].first[v] * xhat[k].first[v];
          const float second = g[k].second[v] * xhat[k].second[v];
          d_q_weight[k].first[v] += query ? first : 0;
          d_q_weight[k].second[v] += query ? second : 0;
          d_k_weight[k].first[v] += query ? 0 : first;
          d_k_weight[k].second[v] += query ? 0 : second;
          g[k].first[v] *= w.first[v];
          g[k].second[v] *= w.second[v];
          along += first * w.first[v] + second * w.second[v];
        }
      }
      along = WarpReduce(along, SumOp<float>{}) / static_cast<float>(2 * p.half);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const int i = lane + k * 32 * V;
        if (i >= p.half) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          g[k].first[v] = rstd * (g[k].first[v] - xhat[k].first[v] * along);
          g[k].second[v] = rstd * (g[k].second[v] - xhat[k].second[v] * along);
        }
        g[k].Store(dx, p.half, i);
      }
    }
  }
  const int dim = 2 * p.half;
  const auto reduce = [&](const Pairs<V>(&mine)[kSteps], float* partial) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int i = lane + k * 32 * V;
      if (i < p.half) mine[k].Store(sums + warp * dim, p.half, i);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < dim; c += kThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += sums[w * dim + c];
      partial[static_cast<std::int64_t>(blockIdx.x) * dim + c] = total;
    }
    __syncthreads();
  };
  reduce(d_q_weight, p.d_q_partial);
  reduce(d_k_weight, p.d_k_partial);
}

Params ParamsOf(const QkNormArgs& args) {
  Params p{};
  p.qkv = args.qkv.data;
  p.raw = args.raw.data;
  p.q_weight = args.q_weight.data;
  p.k_weight = args.k_weight.data;
  p.cos = Data<const float>(args.cos);
  p.sin = Data<const float>(args.sin);
  p.rstd = Data<float>(args.rstd);
  p.qkv_stride = args.qkv.stride;
  p.raw_stride = args.raw.stride;
  p.cos_stride = args.cos.stride;
  p.sin_stride = args.sin.stride;
  p.tokens = args.qkv.rows;
  p.seq = args.seq;
  p.num_heads = args.num_heads;
  p.heads = args.num_heads + args.num_kv_heads;
  p.half = args.head_dim / 2;
  p.eps = args.eps;
  return p;
}

// Calls f(type tag, V, steps) with what the operands' alignment and the head's size allow.
template <typename F>
cudaError_t WithShape(const QkNormArgs& args, F f) {
  return WithType(args.qkv.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    VectorWidth width(2);
    const std::int64_t half = args.head_dim / 2;
    for (const Matrix* m : {&args.qkv, &args.raw}) {
      width.Take(m->data, sizeof(T));
      width.Take(m->stride);
    }
    for (const Matrix* m : {&args.cos, &args.sin}) {
      width.Take(m->data, sizeof(float));
      width.Take(m->stride);
    }
    for (const Vector* v : {&args.q_weight, &args.k_weight}) width.Take(v->data, sizeof(T));
    width.Take(half);
    using std::integral_constant;
    if (width.elements() == 2) {
      if (half <= 64) return f(tag, integral_constant<int, 2>{}, integral_constant<int, 1>{});
      return f(tag, integral_constant<int, 2>{}, integral_constant<int, 2>{});
    }
    if (half <= 32) return f(tag, integral_constant<int, 1>{}, integral_constant<int, 1>{});
    return f(tag, integral_constant<int, 1>{}, integral_constant<int, 4>{});
  });
}

// Depends on the shape alone, so that the order of the sums never changes.
std::int64_t BackwardBlocks(std::int64_t tokens) {
  return std::min<std::int64_t>(tokens, 4 * kNumMultiprocessors);
}

}  // namespace

std::size_t QkNormScratchFloats(std::int64_t tokens, std::int64_t head_dim) {
  return static_cast<std::size_t>(2 * BackwardBlocks(tokens) * head_dim);
}

cudaError_t QkNormRope(cudaStream_t stream, const QkNormArgs& args) {
  const Params p = ParamsOf(args);
  if (p.tokens == 0) return cudaSuccess;
  return WithShape(args, [&](auto tag, auto width, auto steps) {
    using T = typename decltype(tag)::Type;
    const auto blocks = static_cast<unsigned>(CeilDiv(p.tokens * p.heads, kWarps));
    QkNormRopeKernel<T, width(), steps()><<<blocks, kThreads, 0, stream>>>(p);
    return cudaGetLastError();
  });
}

cudaError_t QkNormRopeBackward(cudaStream_t stream, const QkNormArgs& args) {
  Params p = ParamsOf(args);
  const std::int64_t blocks = BackwardBlocks(p.tokens);
  p.d_q_partial = args.scratch;
  p.d_k_partial = args.scratch + blocks * args.head_dim;
  if (blocks > 0) {
    const cudaError_t error = WithShape(args, [&](auto tag, auto width, auto steps) {
      using T = typename decltype(tag)::Type;
      const std::size_t shared_bytes = kWarps * static_cast<std::size_t>(args.head_dim) * 4;
      QkNormRopeBackwardKernel<T, width(), steps()>
          <<<static_cast<unsigned>(blocks), kThreads, shared_bytes, stream>>>(p);
      return cudaGetLastError();
    });
    if (error != cudaSuccess) return error;
  }
  return SumPartials(stream, p.d_q_partial, blocks, args.d_q_weight, args.accumulate, p.d_k_partial,
                     args.d_k_weight);
}

}  // namespace fsdp::kernels

// Attention in f32 arithmetic without TF32: the reference precision, and the way out for shapes
// that the tensor-core kernels do not take. Tiles in shared memory, softmax online, no atomics: dK
// and dV are summed by the block that owns the keys, dQ by the block that owns the queries.

#include <cmath>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/documents.cuh"
#include "worker/device/cuda/kernels/kernels.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kQueries = 16;  // rows of a query tile
inline constexpr int kKeys = 32;     // rows of a key tile
inline constexpr int kThreads = 128;
inline constexpr int kRowThreads = kThreads / kQueries;  // threads that share a query
inline constexpr int kRowKeys = kKeys / kRowThreads;     // keys of a thread
inline constexpr int kKeyThreads = kThreads / kKeys;     // threads that share a key

// rows [first, first + kRows) of one head into shared memory, row pitch head_dim + 1; rows past
// `seq` become zero.
template <typename T, int kRows>
__device__ __forceinline__ void LoadTile(float* tile, const void* head, std::int64_t stride,
                                         std::int64_t first, std::int64_t seq, int head_dim) {
  const T* from = static_cast<const T*>(head);
  for (int i = threadIdx.x; i < kRows * head_dim; i += kThreads) {
    const int row = i / head_dim;
    const int d = i - row * head_dim;
    tile[row * (head_dim + 1) + d] =
        first + row < seq ? ToFloat(from[(first + row) * stride + d]) : 0.0F;
  }
}

template <typename T>
__device__ __forceinline__ const T* Head(const void* data, std::int64_t batch, std::int64_t seq,
                                         std::int64_t stride, int head, int head_dim) {
  return static_cast<const T*>(data) + batch * seq * stride + head * head_dim;
}

// The first key that a query sees.
__device__ __forceinline__ std::int64_t FirstKey(const AttentionArgs& args, std::int64_t batch,
                                                 std::int64_t query) {
  if (args.begins == nullptr) return 0;
  return FirstKeyOf(args.begins + batch * args.seq, query, args.seq);
}

// The first key tile that a tile of queries sees.
__device__ __forceinline__ std::int64_t FirstKeyTile(const AttentionArgs& args, std::int64_t batch,
                                                     std::int64_t first_query) {
  return FirstKey(args, batch, first_query) / kKeys * kKeys;
}

__device__ __forceinline__ float Dot(const float* a, const float* b, int n) {
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Reduction over the kRowThreads neighbours that share a query.
template <typename Op>
__device__ __forceinline__ float RowReduce(float value, Op op) {
#pragma unroll
  for (int offset = kRowThreads / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

template <typename T, int kMaxDim>
__global__ void __launch_bounds__(kThreads) ForwardKernel(const AttentionArgs args) {
  extern __shared__ float shared[];
  const int dim = args.head_dim;
  const int pitch = dim + 1;
  float* q = shared;
  float* k = q + kQueries * pitch;
  float* v = k + kKeys * pitch;
  float* p = v + kKeys * pitch;  // [kQueries][kKeys + 1]

  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kQueries;
  const int head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const T* k_head = Head<T>(args.k, batch, args.seq, args.qkv_stride, kv_head, dim);
  const T* v_head = Head<T>(args.v, batch, args.seq, args.qkv_stride, kv_head, dim);
  LoadTile<T, kQueries>(q, Head<T>(args.q, batch, args.seq, args.qkv_stride, head, dim),
                        args.qkv_stride, first_query, args.seq, dim);

  const int row = threadIdx.x / kRowThreads;
  const int lane = threadIdx.x % kRowThreads;
  const std::int64_t query = first_query + row;
  float max = -INFINITY;
  float sum = 0;
  float out[kMaxDim / kRowThreads] = {};
  const std::int64_t first_seen = FirstKey(args, batch, query);
  const std::int64_t last =
      args.causal ? min(first_query + kQueries, args.seq) : args.seq;  // keys behind are masked
  for (std::int64_t first_key = FirstKeyTile(args, batch, first_query); first_key < last;
       first_key += kKeys) {
    __syncthreads();
    LoadTile<T, kKeys>(k, k_head, args.qkv_stride, first_key, args.seq, dim);
    LoadTile<T, kKeys>(v, v_head, args.qkv_stride, first_key, args.seq, dim);
    __syncthreads();
    float score[kRowKeys];
    float top = max;
#pragma unroll
    for (int j = 0; j < kRowKeys; ++j) {
      const int at = lane + j * kRowThreads;
      const std::int64_t key = first_key + at;
      const bool masked = key >= args.seq || (args.causal && key > query) || key < first_seen;
      score[j] = masked ? -INFINITY : args.scale * Dot(q + row * pitch, k + at * pitch, dim);
      top = fmaxf(top, score[j]);
    }
    top = RowReduce(top, MaxOp<float>{});
    // A row may see no key at all in a tile: its document begins later, or it lies past `seq` and
    // is never stored.
    const float base = top == -INFINITY ? 0 : top;
    const float shrink = expf(max - base);
    max = top;
    float added = 0;
#pragma unroll
    for (int j = 0; j < kRowKeys; ++j) {
      const float weight = expf(score[j] - base);
      added += weight;
      p[row * (kKeys + 1) + lane + j * kRowThreads] = weight;
    }
    sum = sum * shrink + RowReduce(added, SumOp<float>{});
    __syncwarp();  // a row's weights are written and read by one warp
#pragma unroll
    for (int j = 0; j < kMaxDim / kRowThreads; ++j) out[j] *= shrink;
    // Visible keys only: a weight of 0 would still turn another key's NaN into one here.
    const std::int64_t visible = (args.causal ? query + 1 : args.seq) - first_key;
    const int num_keys = static_cast<int>(min(visible, static_cast<std::int64_t>(kKeys)));
    const int hidden = first_seen > first_key ? static_cast<int>(first_seen - first_key) : 0;
#pragma unroll 1
    for (int at = hidden; at < num_keys; ++at) {
      const float weight = p[row * (kKeys + 1) + at];
#pragma unroll
      for (int j = 0; j < kMaxDim / kRowThreads; ++j) {
        const int d = lane + j * kRowThreads;
        if (d < dim) out[j] += weight * v[at * pitch + d];
      }
    }
  }
  if (query >= args.seq) return;
  T* to = const_cast<T*>(Head<T>(args.out, batch, args.seq, args.out_stride, head, dim)) +
          query * args.out_stride;
#pragma unroll
  for (int j = 0; j < kMaxDim / kRowThreads; ++j) {
    const int d = lane + j * kRowThreads;
    if (d < dim) to[d] = FromFloat<T>(out[j] / sum);
  }
  if (lane == 0) {
    args.lse[(batch * args.num_heads + head) * args.seq + query] = max + logf(sum);
  }
}

// delta[b, h, s] = sum over d of dO * O, one warp each.
template <typename T>
__global__ void __launch_bounds__(kThreads) DeltaKernel(const AttentionArgs args) {
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (index >= args.batch * args.num_heads * args.seq) return;
  const std::int64_t position = index % args.seq;
  const int head = static_cast<int>(index / args.seq % args.num_heads);
  const std::int64_t batch = index / args.seq / args.num_heads;
  const T* out = Head<T>(args.out, batch, args.seq, args.out_stride, head, args.head_dim) +
                 position * args.out_stride;
  const T* d_out = Head<T>(args.d_out, batch, args.seq, args.d_out_stride, head, args.head_dim) +
                   position * args.d_out_stride;
  float sum = 0;
  for (int d = threadIdx.x % 32; d < args.head_dim; d += 32) {
    sum += ToFloat(out[d]) * ToFloat(d_out[d]);
  }
  sum = WarpReduce(sum, SumOp<float>{});
  if (threadIdx.x % 32 == 0) args.delta[index] = sum;
}

// Softmax weights and score gradients of one (query tile, key tile) pair into shared memory.
__device__ __forceinline__ void ScoreGradients(const AttentionArgs& args, const float* q,
                                               const float* d_out, const float* k, const float* v,
                                               float lse, float delta, std::int64_t query,
                                               std::int64_t first_seen, std::int64_t first_key,
                                               float* p, float* ds) {
  const int pitch = args.head_dim + 1;
  const int row = threadIdx.x / kRowThreads;
  const int lane = threadIdx.x % kRowThreads;
#pragma unroll
  for (int j = 0; j < kRowKeys; ++j) {
    const int at = lane + j * kRowThreads;
    const std::int64_t key = first_key + at;
    float weight = 0;
    float gradient = 0;
    if (query < args.seq && key < args.seq && !(args.causal && key > query) && key >= first_seen) {
      weight = expf(args.scale * Dot(q + row * pitch, k + at * pitch, args.head_dim) - lse);
      const float dp = Dot(d_out + row * pitch, v + at * pitch, args.head_dim);
      gradient = weight * (dp - delta) * args.scale;
    }
    p[row * (kKeys + 1) + at] = weight;
    ds[row * (kKeys + 1) + at] = gradient;
  }
}

template <typename T, int kMaxDim>
__global__ void __launch_bounds__(kThreads) KeyGradientKernel(const AttentionArgs args) {
  extern __shared__ float shared[];
  const int dim = args.head_dim;
  const int pitch = dim + 1;
  float* k = shared;
  float* v = k + kKeys * pitch;
  float* q = v + kKeys * pitch;
  float* d_out = q + kQueries * pitch;
  float* p = d_out + kQueries * pitch;
  float* ds = p + kQueries * (kKeys + 1);

  const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * kKeys;
  const int kv_head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int group = args.num_heads / args.num_kv_heads;
  LoadTile<T, kKeys>(k, Head<T>(args.k, batch, args.seq, args.qkv_stride, kv_head, dim),
                     args.qkv_stride, first_key, args.seq, dim);
  LoadTile<T, kKeys>(v, Head<T>(args.v, batch, args.seq, args.qkv_stride, kv_head, dim),
                     args.qkv_stride, first_key, args.seq, dim);
  const int own_key = threadIdx.x / kKeyThreads;
  const int lane = threadIdx.x % kKeyThreads;
  const int row = threadIdx.x / kRowThreads;
  float dk[kMaxDim / kKeyThreads] = {};
  float dv[kMaxDim / kKeyThreads] = {};
  const std::int64_t begin = args.causal ? first_key / kQueries * kQueries : 0;
  std::int64_t end = args.seq;
  if (args.begins != nullptr) {
    end =
        QueriesEnd(args.begins + batch * args.seq, min(first_key + kKeys, args.seq) - 1, args.seq);
  }
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::int64_t stats = (batch * args.num_heads + head) * args.seq;
    for (std::int64_t first_query = begin; first_query < end; first_query += kQueries) {
      __syncthreads();
      LoadTile<T, kQueries>(q, Head<T>(args.q, batch, args.seq, args.qkv_stride, head, dim),
                            args.qkv_stride, first_query, args.seq, dim);
      LoadTile<T, kQueries>(d_out,
                            Head<T>(args.d_out, batch, args.seq, args.d_out_stride, head, dim),
                            args.d_out_stride, first_query, args.seq, dim);
      __syncthreads();
      const std::int64_t query = first_query + row;
      const bool inside = query < args.seq;
      ScoreGradients(args, q, d_out, k, v, inside ? args.lse[stats + query] : 0,
                     inside ? args.delta[stats + query] : 0, query, FirstKey(args, batch, query),
                     first_key, p, ds);
      __syncthreads();
#pragma unroll 1
      for (int r = 0; r < kQueries; ++r) {
        const float weight = p[r * (kKeys + 1) + own_key];
        const float gradient = ds[r * (kKeys + 1) + own_key];
#pragma unroll
        for (int j = 0; j < kMaxDim / kKeyThreads; ++j) {
          const int d = lane + j * kKeyThreads;
          if (d >= dim) continue;
          dv[j] += weight * d_out[r * pitch + d];
          dk[j] += gradient * q[r * pitch + d];
        }
      }
    }
  }
  const std::int64_t key = first_key + own_key;
  if (key >= args.seq) return;
  const std::int64_t at =
      (batch * args.seq + key) * args.d_qkv_stride + static_cast<std::int64_t>(kv_head) * dim;
#pragma unroll
  for (int j = 0; j < kMaxDim / kKeyThreads; ++j) {
    const int d = lane + j * kKeyThreads;
    if (d >= dim) continue;
    static_cast<T*>(args.dk)[at + d] = FromFloat<T>(dk[j]);
    static_cast<T*>(args.dv)[at + d] = FromFloat<T>(dv[j]);
  }
}

template <typename T, int kMaxDim>
__global__ void __launch_bounds__(kThreads) QueryGradientKernel(const AttentionArgs args) {
  extern __shared__ float shared[];
  const int dim = args.head_dim;
  const int pitch = dim + 1;
  float* k = shared;
  float* v = k + kKeys * pitch;
  float* q = v + kKeys * pitch;
  float* d_out = q + kQueries * pitch;
  float* p = d_out + kQueries * pitch;
  float* ds = p + kQueries * (kKeys + 1);

  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kQueries;
  const int head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  LoadTile<T, kQueries>(q, Head<T>(args.q, batch, args.seq, args.qkv_stride, head, dim),
                        args.qkv_stride, first_query, args.seq, dim);
  LoadTile<T, kQueries>(d_out, Head<T>(args.d_out, batch, args.seq, args.d_out_stride, head, dim),
                        args.d_out_stride, first_query, args.seq, dim);
  const int row = threadIdx.x / kRowThreads;
  const int lane = threadIdx.x % kRowThreads;
  const std::int64_t query = first_query + row;
  const std::int64_t stats = (batch * args.num_heads + head) * args.seq + query;
  const float lse = query < args.seq ? args.lse[stats] : 0;
  const float delta = query < args.seq ? args.delta[stats] : 0;
  float dq[kMaxDim / kRowThreads] = {};
  const std::int64_t first_seen = FirstKey(args, batch, query);
  const std::int64_t last = args.causal ? min(first_query + kQueries, args.seq) : args.seq;
  for (std::int64_t first_key = FirstKeyTile(args, batch, first_query); first_key < last;
       first_key += kKeys) {
    __syncthreads();
    LoadTile<T, kKeys>(k, Head<T>(args.k, batch, args.seq, args.qkv_stride, kv_head, dim),
                       args.qkv_stride, first_key, args.seq, dim);
    LoadTile<T, kKeys>(v, Head<T>(args.v, batch, args.seq, args.qkv_stride, kv_head, dim),
                       args.qkv_stride, first_key, args.seq, dim);
    __syncthreads();
    ScoreGradients(args, q, d_out, k, v, lse, delta, query, first_seen, first_key, p, ds);
    __syncwarp();  // a row's gradients are written and read by one warp
#pragma unroll 1
    for (int at = 0; at < kKeys; ++at) {
      const float gradient = ds[row * (kKeys + 1) + at];
#pragma unroll
      for (int j = 0; j < kMaxDim / kRowThreads; ++j) {
        const int d = lane + j * kRowThreads;
        if (d < dim) dq[j] += gradient * k[at * pitch + d];
      }
    }
  }
  if (query >= args.seq) return;
  T* to = static_cast<T*>(args.dq) + (batch * args.seq + query) * args.d_qkv_stride +
          static_cast<std::int64_t>(head) * dim;
#pragma unroll
  for (int j = 0; j < kMaxDim / kRowThreads; ++j) {
    const int d = lane + j * kRowThreads;
    if (d < dim) to[d] = FromFloat<T>(dq[j]);
  }
}

std::size_t ForwardSharedBytes(int head_dim) {
  return ((kQueries + 2 * kKeys) * (head_dim + 1) + kQueries * (kKeys + 1)) * sizeof(float);
}
std::size_t BackwardSharedBytes(int head_dim) {
  return (2 * (kQueries + kKeys) * (head_dim + 1) + 2 * kQueries * (kKeys + 1)) * sizeof(float);
}

// Launches a kernel that needs more than the default 48 KiB of shared memory.
template <typename Kernel>
cudaError_t Launch(Kernel kernel, dim3 grid, std::size_t shared_bytes, cudaStream_t stream,
                   const AttentionArgs& args) {
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shared_bytes));
      error != cudaSuccess) {
    return error;
  }
  kernel<<<grid, kThreads, shared_bytes, stream>>>(args);
  return cudaGetLastError();
}

// Calls f with the smallest register tile that holds head_dim.
template <typename F>
cudaError_t WithMaxDim(int head_dim, F f) {
  if (head_dim <= 64) return f(std::integral_constant<int, 64>{});
  if (head_dim <= 128) return f(std::integral_constant<int, 128>{});
  return f(std::integral_constant<int, 256>{});
}

}  // namespace

cudaError_t AttentionForward(cudaStream_t stream, const AttentionArgs& args) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.seq, kQueries)), args.num_heads,
                  static_cast<unsigned>(args.batch));
  return WithType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithMaxDim(args.head_dim, [&](auto dim) {
      return Launch(ForwardKernel<T, dim()>, grid, ForwardSharedBytes(args.head_dim), stream, args);
    });
  });
}

cudaError_t AttentionDelta(cudaStream_t stream, const AttentionArgs& args) {
  const std::int64_t rows = args.batch * args.num_heads * args.seq;
  return WithType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto blocks = static_cast<unsigned>(CeilDiv(rows, kThreads / 32));
    DeltaKernel<T><<<blocks, kThreads, 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t AttentionBackward(cudaStream_t stream, const AttentionArgs& args) {
  if (cudaError_t error = AttentionDelta(stream, args); error != cudaSuccess) return error;
  const dim3 key_grid(static_cast<unsigned>(CeilDiv(args.seq, kKeys)), args.num_kv_heads,
                      static_cast<unsigned>(args.batch));
  const dim3 query_grid(static_cast<unsigned>(CeilDiv(args.seq, kQueries)), args.num_heads,
                        static_cast<unsigned>(args.batch));
  const std::size_t shared_bytes = BackwardSharedBytes(args.head_dim);
  return WithType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithMaxDim(args.head_dim, [&](auto dim) {
      if (cudaError_t error =
              Launch(KeyGradientKernel<T, dim()>, key_grid, shared_bytes, stream, args);
          error != cudaSuccess) {
        return error;
      }
      return Launch(QueryGradientKernel<T, dim()>, query_grid, shared_bytes, stream, args);
    });
  });
}

}  // namespace fsdp::kernels

// Attention in bf16 on the tensor cores: tiles of 64 queries by 64 keys, softmax online, f32
// accumulators in registers, the scores never in memory. Deterministic and free of atomics: dK and
// dV are summed by the block that owns the keys (over the whole group of query heads), dQ by the
// block that owns the queries, at the price of computing the scores twice in the backward pass.
//
// With kDocuments tiles in which no query sees a key are left out; without it nothing is paid for
// documents.

#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/documents.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/tensor_core.cuh"

namespace fsdp::kernels {
namespace {

using Element = __nv_bfloat16;

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;
inline constexpr int kKeyTiles = kTileRows / 8;  // accumulators of a warp's 16 x 64 scores

__device__ __forceinline__ const Element* Head(const void* data, std::int64_t batch,
                                               std::int64_t seq, std::int64_t stride, int head,
                                               int head_dim) {
  return static_cast<const Element*>(data) + batch * seq * stride +
         static_cast<std::int64_t>(head) * head_dim;
}

template <int D>
__device__ __forceinline__ Tile<D> TileAt(std::uint32_t base, int index) {
  return {base + index * Tile<D>::kBytes};
}

__device__ __forceinline__ std::uint32_t SharedBase() {
  extern __shared__ __align__(128) unsigned char shared[];
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// scores[n] = rows [row, row + 16) of `left` times the 64 rows of `right`, transposed.
template <int D>
__device__ __forceinline__ void MultiplyTransposed(float (&scores)[kKeyTiles][4],
                                                   const Tile<D>& left, int row,
                                                   const Tile<D>& right) {
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
  }
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const Fragment a = LoadLeft(left, row, k);
#pragma unroll
    for (int n = 0; n < kKeyTiles; n += 2) {
      const Fragment b = LoadRight(right, n * 8, k);
      MultiplyAdd(scores[n], a, b.r[0], b.r[1]);
      MultiplyAdd(scores[n + 1], a, b.r[2], b.r[3]);
    }
  }
}

// sum += weights (16 x 64) times the 64 rows of `right`.
template <int D>
__device__ __forceinline__ void MultiplyInto(float (&sum)[D / 8][4],
                                             const float (&weights)[kKeyTiles][4],
                                             const Tile<D>& right) {
#pragma unroll
  for (int k = 0; k < kKeyTiles / 2; ++k) {
    const Fragment a = AsLeft(weights[2 * k], weights[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      const Fragment b = LoadRightRows(right, k * 16, n);
      MultiplyAdd(sum[2 * n], a, b.r[0], b.r[1]);
      MultiplyAdd(sum[2 * n + 1], a, b.r[2], b.r[3]);
    }
  }
}

// Stores a warp's 16 x D sums, times `factor[half]`, as rows first .. of one head.
template <int D>
__device__ __forceinline__ void StoreRows(const float (&sum)[D / 8][4], const float (&factor)[2],
                                          Element* head, std::int64_t stride, std::int64_t first,
                                          std::int64_t seq, int head_dim) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + lane / 4 + half * 8;
    if (row >= seq) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      if (n * 8 >= head_dim) continue;
      const std::uint32_t pair =
          PackBf16(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]);
      *reinterpret_cast<std::uint32_t*>(head + row * stride + n * 8 + lane % 4 * 2) = pair;
    }
  }
}

// Heavy tiles of a causal grid first: they would otherwise end last.
__device__ __forceinline__ std::int64_t FirstQuery(const AttentionArgs& args) {
  const unsigned tile = args.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  return static_cast<std::int64_t>(tile) * kTileRows;
}

// What a block that owns queries knows of their documents. A thread holds scores of two rows:
// first_query + 16 warp + lane / 4 and the one eight below.
struct QueryDocuments {
  int first_tile = 0;               // of keys
  std::int64_t last_begin = 0;      // keys before it are hidden from a row of the tile
  std::int64_t first_seen[2] = {};  // by each of the thread's rows

  template <bool kDocuments>
  static __device__ __forceinline__ QueryDocuments Of(const AttentionArgs& args,
                                                      std::int64_t first_query) {
    QueryDocuments documents;
    if constexpr (kDocuments) {
      const std::int32_t* begins = args.begins + blockIdx.z * args.seq;
      const std::int64_t row = first_query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
      documents.first_tile = FirstKeyOf(begins, first_query, args.seq) / kTileRows;
      documents.last_begin = FirstKeyOf(begins, first_query + kTileRows - 1, args.seq);
      documents.first_seen[0] = FirstKeyOf(begins, row, args.seq);
      documents.first_seen[1] = FirstKeyOf(begins, row + 8, args.seq);
    }
    return documents;
  }
};

template <int D, bool kDocuments>
__global__ void __launch_bounds__(kTileThreads, D == 64 ? 4 : 3)
    FlashForwardKernel(const AttentionArgs args) {
  const std::uint32_t base = SharedBase();
  const auto key_tile = [base](int stage) { return TileAt<D>(base, stage); };
  const auto value_tile = [base](int stage) { return TileAt<D>(base, 2 + stage); };
  const Tile<D> query_tile = value_tile(1);  // until the second stage is loaded

  const std::int64_t first_query = FirstQuery(args);
  const int head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int dim = args.head_dim;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const Element* keys = Head(args.k, batch, args.seq, args.qkv_stride, kv_head, dim);
  const Element* values = Head(args.v, batch, args.seq, args.qkv_stride, kv_head, dim);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const std::int64_t visible = args.causal ? min(first_query + kTileRows, args.seq) : args.seq;
  const auto documents = QueryDocuments::Of<kDocuments>(args, first_query);
  const int num_tiles = static_cast<int>(CeilDiv(visible, kTileRows)) - documents.first_tile;
  const auto key_of = [&](int tile) {
    return static_cast<std::int64_t>(documents.first_tile + tile) * kTileRows;
  };
  const auto load = [&](int tile) {
    key_tile(tile % 2).StartLoad(keys, args.qkv_stride, key_of(tile), args.seq, dim);
    value_tile(tile % 2).StartLoad(values, args.qkv_stride, key_of(tile), args.seq, dim);
    CommitLoads();
  };

  query_tile.StartLoad(Head(args.q, batch, args.seq, args.qkv_stride, head, dim), args.qkv_stride,
                       first_query, args.seq, dim);
  load(0);
  WaitLoads<0>();
  __syncthreads();
  Fragment query[D / 16];
#pragma unroll
  for (int k = 0; k < D / 16; ++k) query[k] = LoadLeft(query_tile, warp * 16, k);
  __syncthreads();

  const float scale = args.scale * kLog2E;  // softmax in powers of two
  float out[D / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  for (int tile = 0; tile < num_tiles; ++tile) {
    if (tile + 1 < num_tiles) {
      load(tile + 1);
      WaitLoads<1>();
    } else {
      WaitLoads<0>();
    }
    __syncthreads();
    float scores[kKeyTiles][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const Fragment b = LoadRight(key_tile(tile % 2), n * 8, k);
        MultiplyAdd(scores[n], query[k], b.r[0], b.r[1]);
        MultiplyAdd(scores[n + 1], query[k], b.r[2], b.r[3]);
      }
    }
    const std::int64_t first_key = key_of(tile);
    const std::int64_t query_row = first_query + warp * 16 + lane / 4;
    const bool edge = first_key + kTileRows > (args.causal ? first_query : args.seq) ||
                      (kDocuments && first_key < documents.last_begin);
    if (edge) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
          const std::int64_t row = query_row + i / 2 * 8;
          if (key >= args.seq || (args.causal && key > row) ||
              (kDocuments && key < documents.first_seen[i / 2])) {
            scores[n][i] = -INFINITY;
          }
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = max[half];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
      // The first tile holds a visible key of every row, so top is finite; but not of a row whose
      // document begins in a later tile.
      const float base = kDocuments && top == -INFINITY ? 0 : top;
      const float shrink = Exp2((max[half] - base) * scale);
      max[half] = top;
      sum[half] *= shrink;
      const float shift = base * scale;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = Exp2(fmaf(scores[n][i], scale, -shift));
          sum[half] += scores[n][i];
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        out[n][2 * half] *= shrink;
        out[n][2 * half + 1] *= shrink;
      }
    }
    MultiplyInto<D>(out, scores, value_tile(tile % 2));
    __syncthreads();  // the next load overwrites this stage's neighbour only after all are done
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 2);
    factor[half] = 1.0F / sum[half];
    const std::int64_t row = first_query + warp * 16 + lane / 4 + half * 8;
    if (lane % 4 == 0 && row < args.seq) {
      args.lse[(batch * args.num_heads + head) * args.seq + row] =
          max[half] * args.scale + log2f(sum[half]) * kLn2;
    }
  }
  StoreRows<D>(out, factor,
               const_cast<Element*>(Head(args.out, batch, args.seq, args.out_stride, head, dim)),
               args.out_stride, first_query + warp * 16, args.seq, dim);
}

// dK and dV of 64 keys; a warp owns 16 of them and works on transposed scores: rows are keys,
// columns are queries.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(kTileThreads, 2)
    FlashKeyGradientKernel(const AttentionArgs args) {
  __shared__ float lse[2][kTileRows];
  __shared__ float delta[2][kTileRows];
  __shared__ std::int32_t first_seen[2][kDocuments ? kTileRows : 1];
  const std::uint32_t base = SharedBase();
  const Tile<D> key_tile = TileAt<D>(base, 0);
  const Tile<D> value_tile = TileAt<D>(base, 1);
  const auto query_tile = [base](int stage) { return TileAt<D>(base, 2 + stage); };
  const auto d_out_tile = [base](int stage) { return TileAt<D>(base, 4 + stage); };

  const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * kTileRows;
  const int kv_head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int dim = args.head_dim;
  const int group = args.num_heads / args.num_kv_heads;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int first_tile = args.causal ? blockIdx.x : 0;  // earlier queries see none of these keys
  const std::int32_t* begins = kDocuments ? args.begins + batch * args.seq : nullptr;
  std::int64_t queries_end = args.seq;
  if constexpr (kDocuments) {
    queries_end = QueriesEnd(begins, min(first_key + kTileRows, args.seq) - 1, args.seq);
  }
  const int tiles_per_head = static_cast<int>(CeilDiv(queries_end, kTileRows)) - first_tile;
  const int num_steps = group * tiles_per_head;

  const auto head_of = [&](int step) { return kv_head * group + step / tiles_per_head; };
  const auto query_of = [&](int step) {
    return static_cast<std::int64_t>(first_tile + step % tiles_per_head) * kTileRows;
  };
  const auto load = [&](int step) {
    const int head = head_of(step);
    const std::int64_t first = query_of(step);
    query_tile(step % 2).StartLoad(Head(args.q, batch, args.seq, args.qkv_stride, head, dim),
                                   args.qkv_stride, first, args.seq, dim);
    d_out_tile(step % 2).StartLoad(Head(args.d_out, batch, args.seq, args.d_out_stride, head, dim),
                                   args.d_out_stride, first, args.seq, dim);
    CommitLoads();
    if (threadIdx.x < kTileRows) {
      const std::int64_t row = first + threadIdx.x;
      const std::int64_t at = (batch * args.num_heads + head) * args.seq + row;
      // A query past the end weighs nothing: exp2(-inf) = 0.
      lse[step % 2][threadIdx.x] = row < args.seq ? args.lse[at] * kLog2E : INFINITY;
      delta[step % 2][threadIdx.x] = row < args.seq ? args.delta[at] : 0;
      if constexpr (kDocuments) {
        first_seen[step % 2][threadIdx.x] = FirstKeyOf(begins, row, args.seq);
      }
    }
  };

  key_tile.StartLoad(Head(args.k, batch, args.seq, args.qkv_stride, kv_head, dim), args.qkv_stride,
                     first_key, args.seq, dim);
  value_tile.StartLoad(Head(args.v, batch, args.seq, args.qkv_stride, kv_head, dim),
                       args.qkv_stride, first_key, args.seq, dim);
  load(0);
  const float scale = args.scale * kLog2E;
  float dk[D / 8][4] = {};
  float dv[D / 8][4] = {};
  for (int step = 0; step < num_steps; ++step) {
    if (step + 1 < num_steps) {
      load(step + 1);
      WaitLoads<1>();
    } else {
      WaitLoads<0>();
    }
    __syncthreads();
    const int stage = step % 2;
    float weights[kKeyTiles][4];
    MultiplyTransposed<D>(weights, key_tile, warp * 16, query_tile(stage));
    const bool diagonal = args.causal && query_of(step) < first_key + kTileRows;
    const bool crossed =
        kDocuments && first_seen[stage][kDocuments ? kTileRows - 1 : 0] > first_key;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = n * 8 + lane % 4 * 2 + i % 2;
        weights[n][i] = Exp2(fmaf(weights[n][i], scale, -lse[stage][column]));
        if (diagonal || crossed) {
          const std::int64_t key = first_key + warp * 16 + lane / 4 + i / 2 * 8;
          if (key > query_of(step) + column) weights[n][i] = 0;
          if (kDocuments && key < first_seen[stage][kDocuments ? column : 0]) weights[n][i] = 0;
        }
      }
    }
    MultiplyInto<D>(dv, weights, d_out_tile(stage));
    float gradients[kKeyTiles][4];
    MultiplyTransposed<D>(gradients, value_tile, warp * 16, d_out_tile(stage));
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = n * 8 + lane % 4 * 2 + i % 2;
        gradients[n][i] = weights[n][i] * (gradients[n][i] - delta[stage][column]);
      }
    }
    MultiplyInto<D>(dk, gradients, query_tile(stage));
    __syncthreads();
  }
  const float k_factor[2] = {args.scale, args.scale};
  const float v_factor[2] = {1, 1};
  const std::int64_t head =
      batch * args.seq * args.d_qkv_stride + static_cast<std::int64_t>(kv_head) * dim;
  StoreRows<D>(dk, k_factor, static_cast<Element*>(args.dk) + head, args.d_qkv_stride,
               first_key + warp * 16, args.seq, dim);
  StoreRows<D>(dv, v_factor, static_cast<Element*>(args.dv) + head, args.d_qkv_stride,
               first_key + warp * 16, args.seq, dim);
}

template <int D, bool kDocuments>
__global__ void __launch_bounds__(kTileThreads, 2)
    FlashQueryGradientKernel(const AttentionArgs args) {
  const std::uint32_t base = SharedBase();
  const Tile<D> query_tile = TileAt<D>(base, 0);
  const Tile<D> d_out_tile = TileAt<D>(base, 1);
  const auto key_tile = [base](int stage) { return TileAt<D>(base, 2 + stage); };
  const auto value_tile = [base](int stage) { return TileAt<D>(base, 4 + stage); };

  const std::int64_t first_query = FirstQuery(args);
  const int head = blockIdx.y;
  const std::int64_t batch = blockIdx.z;
  const int dim = args.head_dim;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const Element* keys = Head(args.k, batch, args.seq, args.qkv_stride, kv_head, dim);
  const Element* values = Head(args.v, batch, args.seq, args.qkv_stride, kv_head, dim);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const std::int64_t visible = args.causal ? min(first_query + kTileRows, args.seq) : args.seq;
  const auto documents = QueryDocuments::Of<kDocuments>(args, first_query);
  const int num_tiles = static_cast<int>(CeilDiv(visible, kTileRows)) - documents.first_tile;
  const auto key_of = [&](int tile) {
    return static_cast<std::int64_t>(documents.first_tile + tile) * kTileRows;
  };
  const auto load = [&](int tile) {
    key_tile(tile % 2).StartLoad(keys, args.qkv_stride, key_of(tile), args.seq, dim);
    value_tile(tile % 2).StartLoad(values, args.qkv_stride, key_of(tile), args.seq, dim);
    CommitLoads();
  };

  query_tile.StartLoad(Head(args.q, batch, args.seq, args.qkv_stride, head, dim), args.qkv_stride,
                       first_query, args.seq, dim);
  d_out_tile.StartLoad(Head(args.d_out, batch, args.seq, args.d_out_stride, head, dim),
                       args.d_out_stride, first_query, args.seq, dim);
  load(0);
  float lse[2];
  float delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first_query + warp * 16 + lane / 4 + half * 8;
    const std::int64_t at = (batch * args.num_heads + head) * args.seq + row;
    lse[half] = row < args.seq ? args.lse[at] * kLog2E : INFINITY;
    delta[half] = row < args.seq ? args.delta[at] : 0;
  }
  const float scale = args.scale * kLog2E;
  float dq[D / 8][4] = {};
  for (int tile = 0; tile < num_tiles; ++tile) {
    if (tile + 1 < num_tiles) {
      load(tile + 1);
      WaitLoads<1>();
    } else {
      WaitLoads<0>();
    }
    __syncthreads();
    float weights[kKeyTiles][4];
    float gradients[kKeyTiles][4];
    MultiplyTransposed<D>(weights, query_tile, warp * 16, key_tile(tile % 2));
    MultiplyTransposed<D>(gradients, d_out_tile, warp * 16, value_tile(tile % 2));
    const std::int64_t first_key = key_of(tile);
    const bool edge = first_key + kTileRows > (args.causal ? first_query : args.seq) ||
                      (kDocuments && first_key < documents.last_begin);
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float weight = Exp2(fmaf(weights[n][i], scale, -lse[i / 2]));
        if (edge) {
          const std::int64_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
          const std::int64_t row = first_query + warp * 16 + lane / 4 + i / 2 * 8;
          if (key >= args.seq || (args.causal && key > row) ||
              (kDocuments && key < documents.first_seen[i / 2])) {
            weight = 0;
          }
        }
        gradients[n][i] = weight * (gradients[n][i] - delta[i / 2]);
      }
    }
    MultiplyInto<D>(dq, gradients, key_tile(tile % 2));
    __syncthreads();
  }
  const float factor[2] = {args.scale, args.scale};
  StoreRows<D>(dq, factor,
               static_cast<Element*>(args.dq) + batch * args.seq * args.d_qkv_stride +
                   static_cast<std::int64_t>(head) * dim,
               args.d_qkv_stride, first_query + warp * 16, args.seq, dim);
}

template <typename Kernel>
cudaError_t Launch(Kernel kernel, int heads, int shared_bytes, cudaStream_t stream,
                   const AttentionArgs& args) {
  if (cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.seq, kTileRows)), heads,
                  static_cast<unsigned>(args.batch));
  kernel<<<grid, kTileThreads, shared_bytes, stream>>>(args);
  return cudaGetLastError();
}

// Calls f with whether there are documents, and with the smallest tile that holds head_dim.
template <typename F>
cudaError_t WithTile(const AttentionArgs& args, F f) {
  const auto with_dim = [&](auto documents) {
    if (args.head_dim <= 64) return f(std::integral_constant<int, 64>{}, documents);
    return f(std::integral_constant<int, 128>{}, documents);
  };
  return args.begins == nullptr ? with_dim(std::false_type{}) : with_dim(std::true_type{});
}

bool Aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool FlashAttentionTakes(const AttentionArgs& args) {
  return args.dtype == DType::kBf16 && args.head_dim % 8 == 0 && args.head_dim <= 128 &&
         args.scale > 0 && Aligned(args.q, args.qkv_stride) && Aligned(args.k, args.qkv_stride) &&
         Aligned(args.v, args.qkv_stride) && Aligned(args.out, args.out_stride) &&
         Aligned(args.d_out, args.d_out_stride) && Aligned(args.dq, args.d_qkv_stride) &&
         Aligned(args.dk, args.d_qkv_stride) && Aligned(args.dv, args.d_qkv_stride);
}

cudaError_t FlashAttentionForward(cudaStream_t stream, const AttentionArgs& args) {
  return WithTile(args, [&](auto dim, auto documents) {
    return Launch(FlashForwardKernel<dim(), documents()>, args.num_heads, 4 * Tile<dim()>::kBytes,
                  stream, args);
  });
}

cudaError_t FlashAttentionBackward(cudaStream_t stream, const AttentionArgs& args) {
  if (cudaError_t error = AttentionDelta(stream, args); error != cudaSuccess) return error;
  return WithTile(args, [&](auto dim, auto documents) {
    constexpr int kSharedBytes = 6 * Tile<dim()>::kBytes;
    if (cudaError_t error = Launch(FlashKeyGradientKernel<dim(), documents()>, args.num_kv_heads,
                                   kSharedBytes, stream, args);
        error != cudaSuccess) {
      return error;
    }
    return Launch(FlashQueryGradientKernel<dim(), documents()>, args.num_heads, kSharedBytes,
                  stream, args);
  });
}

}  // namespace fsdp::kernels

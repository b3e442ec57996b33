// Cross-entropy over long rows: one read and one write of each logit. A row lies in the shared
// memory of one block, or of a cluster of up to eight, and the next rows are on their way while
// this one is worked on, so that memory never waits for the arithmetic.

#include <cooperative_groups.h>

#include <algorithm>
#include <utility>

#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/softmax.cuh"
#include "worker/device/cuda/kernels/tensor_core.cuh"
#include "worker/device/ops.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 1024;
inline constexpr int kMaxCluster = 8;  // the most that every device with clusters allows

struct SharedRowsParams {
  void* logits;
  std::int64_t stride, rows;
  int num_vectors;   // of a row, 16 bytes each
  int part_vectors;  // of a row in one block
  int cluster_blocks;
  const std::int32_t* targets;
  double* row_loss;
  bool loss_only;
};

// The blocks of a cluster exchange one value each. Two slots in turn: a block may be one exchange
// ahead of another, never two.
struct Exchange {
  float2 warps[2][32];
  float2 blocks[2][kMaxCluster];
};

template <typename T>
__device__ __forceinline__ float2 Merge(float2 a, float2 b) {
  const float top = fmaxf(a.x, b.x);
  const RunningSoftmax<T> first{a.x, a.y};
  const RunningSoftmax<T> second{b.x, b.y};
  return make_float2(top, first.SumBelow(top) + second.SumBelow(top));
}
template <typename T>
__device__ __forceinline__ float2 WarpMerge(float2 value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    // Merge commutes to the bit, so every lane ends with the same value.
    value = Merge<T>(value, make_float2(__shfl_xor_sync(0xffffffffU, value.x, offset),
                                        __shfl_xor_sync(0xffffffffU, value.y, offset)));
  }
  return value;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// No clusters before sm_90, and the launcher makes none there.
__device__ __forceinline__ int ClusterRank() { return 0; }
__device__ __forceinline__ void ClusterSync() {}
__device__ __forceinline__ float2* OfBlock(float2* mine, int) { return mine; }
#else
__device__ __forceinline__ int ClusterRank() {
  return static_cast<int>(cooperative_groups::this_cluster().block_rank());
}
__device__ __forceinline__ void ClusterSync() { cooperative_groups::this_cluster().sync(); }
__device__ __forceinline__ float2* OfBlock(float2* mine, int block) {
  return cooperative_groups::this_cluster().map_shared_rank(mine, block);
}
#endif

// {maximum, sum} over the row, the same in every thread of the cluster.
template <typename T>
__device__ __forceinline__ float2 RowMerge(float2 value, Exchange& exchange, int turn, int rank,
                                           int cluster_blocks) {
  value = WarpMerge<T>(value);
  if (threadIdx.x % 32 == 0) exchange.warps[turn][threadIdx.x / 32] = value;
  __syncthreads();
  value = WarpMerge<T>(exchange.warps[turn][threadIdx.x % 32]);
  if (cluster_blocks == 1) return value;
  if (threadIdx.x < cluster_blocks) {
    *OfBlock(&exchange.blocks[turn][rank], static_cast<int>(threadIdx.x)) = value;
  }
  ClusterSync();
  value = exchange.blocks[turn][0];
  for (int block = 1; block < cluster_blocks; ++block) {
    value = Merge<T>(value, exchange.blocks[turn][block]);
  }
  return value;
}

// A thread reads only what itself had copied, so the copies need no barrier.
template <typename T, int kBuffers>
__global__ void __launch_bounds__(kThreads, 1) CrossEntropySharedKernel(const SharedRowsParams p) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  extern __shared__ uint4 buffers[];  // [kBuffers][part_vectors]
  __shared__ Exchange exchange;
  const int rank = p.cluster_blocks == 1 ? 0 : ClusterRank();
  const int first = rank * p.part_vectors;
  const int mine = min(p.part_vectors, p.num_vectors - first);
  const std::int64_t step = gridDim.x / p.cluster_blocks;
  T* const logits = static_cast<T*>(p.logits);
  const auto start = [&](std::int64_t row, int buffer) {
    if (row < p.rows && p.targets[row] != kIgnoreTarget) {
      const T* from = logits + row * p.stride + static_cast<std::int64_t>(first) * V;
      for (int at = threadIdx.x; at < mine; at += kThreads) {
        const auto to = static_cast<std::uint32_t>(
            __cvta_generic_to_shared(buffers + buffer * p.part_vectors + at));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                     "l"(from + static_cast<std::int64_t>(at) * V));
      }
    }
    CommitLoads();  // an empty group counts too
  };
  if (p.cluster_blocks > 1) ClusterSync();  // every block's memory is there before it is written
  std::int64_t row = blockIdx.x / p.cluster_blocks;
#pragma unroll
  for (int b = 0; b < kBuffers; ++b) start(row + b * step, b);
  int turn = 0;
  for (int buffer = 0; row < p.rows; row += step, buffer = (buffer + 1) % kBuffers) {
    WaitLoads<kBuffers - 1>();
    T* x = logits + row * p.stride + static_cast<std::int64_t>(first) * V;
    const std::int64_t target = p.targets[row];
    const bool leader = threadIdx.x == 0 && rank == 0;
    if (target == kIgnoreTarget) {
      if (leader) p.row_loss[row] = 0;
      for (int at = threadIdx.x; at < mine && !p.loss_only; at += kThreads) {
        *reinterpret_cast<uint4*>(x + static_cast<std::int64_t>(at) * V) = uint4{};
      }
      start(row + kBuffers * step, buffer);
      continue;
    }
    const uint4* part = buffers + buffer * p.part_vectors;
    // Read before the row's merge, behind which it is overwritten.
    const float target_logit = leader ? ToFloat(logits[row * p.stride + target]) : 0;
    RunningSoftmax<T> running;
#pragma unroll 2
    for (int at = threadIdx.x; at < mine; at += kThreads) {
      float values[V];
      Words{part[at]}.Unpack(values);
      running.Take(values);
    }
    const float2 whole =
        RowMerge<T>(make_float2(running.max, running.sum), exchange, turn, rank, p.cluster_blocks);
    turn ^= 1;
    if (leader) {
      p.row_loss[row] =
          static_cast<double>(whole.x) + logf(whole.y) - static_cast<double>(target_logit);
    }
    if (!p.loss_only) {
      const ExpFrom<T> exp(whole.x);
      const float inverse = 1.0F / whole.y;
      const int hit = static_cast<int>(target / V) - first;
#pragma unroll 2
      for (int at = threadIdx.x; at < mine; at += kThreads) {
        float values[V];
        Words{part[at]}.Unpack(values);
#pragma unroll
        for (int i = 0; i < V; ++i) values[i] = exp(values[i]) * inverse;
        if (at == hit) {
#pragma unroll
          for (int i = 0; i < V; ++i) values[i] -= target % V == i ? 1.0F : 0.0F;
        }
        StoreFloats<T, V>(x + static_cast<std::int64_t>(at) * V, values);
      }
    }
    start(row + kBuffers * step, buffer);
  }
}

struct Layout {
  int cluster_blocks = 0;  // 0: no such row fits
  int buffers = 0;
  int part_vectors = 0;
  std::size_t shared_bytes = 0;
};

struct DeviceFigures {
  int shared_bytes = 0, multiprocessors = 0, major = 0;
};

cudaError_t FiguresOf(DeviceFigures& figures) {
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::pair<int*, cudaDeviceAttr> wanted[] = {
      {&figures.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin},
      {&figures.multiprocessors, cudaDevAttrMultiProcessorCount},
      {&figures.major, cudaDevAttrComputeCapabilityMajor}};
  for (const auto& [to, attribute] : wanted) {
    if (cudaError_t error = cudaDeviceGetAttribute(to, attribute, device); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

// The fewest blocks that hold a row and at least one more.
Layout LayoutOf(std::int64_t num_vectors, const DeviceFigures& device) {
  const std::size_t limit = device.shared_bytes - sizeof(Exchange) - 64;
  const int max_cluster = device.major >= 9 ? kMaxCluster : 1;
  for (int blocks = 1; blocks <= max_cluster; blocks *= 2) {
    const std::int64_t part = CeilDiv(num_vectors, blocks);
    for (const int buffers : {3, 2}) {
      const std::size_t bytes = static_cast<std::size_t>(part) * buffers * sizeof(uint4);
      if (bytes <= limit) return {blocks, buffers, static_cast<int>(part), bytes};
    }
  }
  return {};
}

template <typename Kernel>
cudaError_t LaunchRows(cudaStream_t stream, Kernel kernel, const Layout& layout,
                       const DeviceFigures& device, const SharedRowsParams& p) {
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(layout.shared_bytes));
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(layout.cluster_blocks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = layout.shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = layout.cluster_blocks > 1 ? 1 : 0;
  // As many as run at once, or the last ones would wait for all the others' rows.
  int clusters = device.multiprocessors / layout.cluster_blocks;
  if (layout.cluster_blocks > 1) {
    config.gridDim = dim3(static_cast<unsigned>(clusters * layout.cluster_blocks));
    if (cudaError_t error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
        error != cudaSuccess) {
      return error;
    }
  }
  clusters = static_cast<int>(std::clamp<std::int64_t>(clusters, 1, p.rows));
  config.gridDim = dim3(static_cast<unsigned>(clusters * layout.cluster_blocks));
  return cudaLaunchKernelEx(&config, kernel, p);
}

}  // namespace

SharedRowsLaunch CrossEntropySharedRows(cudaStream_t stream, const Matrix& logits,
                                        const std::int32_t* targets, double* row_loss,
                                        bool loss_only) {
  constexpr std::int64_t kWorthIt = 2048;  // vectors: two for each thread
  const auto element = static_cast<std::int64_t>(SizeOf(logits.dtype));
  const std::int64_t num_vectors = logits.cols * element / 16;
  VectorWidth width(static_cast<int>(16 / element));
  width.Take(logits);
  if (width.elements() * element != 16 || num_vectors < kWorthIt) return {};
  DeviceFigures device;
  if (cudaError_t error = FiguresOf(device); error != cudaSuccess) return {true, error};
  const Layout layout = LayoutOf(num_vectors, device);
  if (layout.cluster_blocks == 0) return {};
  const SharedRowsParams p{logits.data,
                           logits.stride,
                           logits.rows,
                           static_cast<int>(num_vectors),
                           layout.part_vectors,
                           layout.cluster_blocks,
                           targets,
                           row_loss,
                           loss_only};
  const cudaError_t error = WithType(logits.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return layout.buffers == 3
               ? LaunchRows(stream, CrossEntropySharedKernel<T, 3>, layout, device, p)
               : LaunchRows(stream, CrossEntropySharedKernel<T, 2>, layout, device, p);
  });
  return {true, error};
}

}  // namespace fsdp::kernels

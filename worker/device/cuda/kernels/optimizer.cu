// Gradient statistics, the step's scalars, AdamW over a whole shard in one launch, and the split of
// an f32 master into bf16 + 16 bits.

#include <algorithm>
#include <cmath>

#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/map.cuh"
#include "worker/device/ops.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 256;

struct BlockStats {
  double squares;
  double nonfinite;
};

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    GradStatsKernel(const T* grad, std::int64_t size, BlockStats* blocks) {
  __shared__ double shared[32];
  double squares = 0;
  double nonfinite = 0;
  const std::int64_t num_vectors = size / V;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
#pragma unroll 4
  for (std::int64_t at = first; at < num_vectors; at += step) {
    float value[V];
    LoadFloats<T, V>(grad + at * V, value);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const auto wide = static_cast<double>(value[i]);
      squares += wide * wide;
      if (!isfinite(value[i])) nonfinite = 1;
    }
  }
  squares = BlockReduce(squares, SumOp<double>{}, 0.0, shared);
  nonfinite = BlockReduce(nonfinite, SumOp<double>{}, 0.0, shared);
  if (threadIdx.x == 0) blocks[blockIdx.x] = {squares, nonfinite};
}

__global__ void __launch_bounds__(1024)
    FinishGradStatsKernel(const BlockStats* blocks, std::int64_t num_blocks, StepStats* stats) {
  __shared__ double shared[32];
  double squares = 0;
  double nonfinite = 0;
  for (std::int64_t at = threadIdx.x; at < num_blocks; at += blockDim.x) {
    squares += blocks[at].squares;
    nonfinite += blocks[at].nonfinite;
  }
  squares = BlockReduce(squares, SumOp<double>{}, 0.0, shared);
  nonfinite = BlockReduce(nonfinite, SumOp<double>{}, 0.0, shared);
  if (threadIdx.x != 0) return;
  stats->grad_norm_sq += squares;
  if (nonfinite > 0) stats->nonfinite += 1;
}

__global__ void FinishStatsKernel(const StepStats* stats, float max_norm, const StepScalars* step,
                                  UpdateScalars* scalars) {
  const double valid = stats->valid_tokens;
  UpdateScalars out{};
  bool usable = false;
  if (valid > 0) {
    const double norm = sqrt(stats->grad_norm_sq) / valid;
    const double loss = stats->loss_sum / valid;
    usable = !(stats->nonfinite > 0) && isfinite(norm) && isfinite(loss) &&
             loss <= step->bounds.loss && norm <= step->bounds.grad_norm;
    // As torch's clip_grad_norm_: the 1e-6 keeps the factor finite at norm 0.
    double clip = 1;
    if (max_norm > 0) clip = fmin(1.0, static_cast<double>(max_norm) / (norm + 1e-6));
    out.grad_scale = static_cast<float>(clip / valid);
    out.grad_norm = static_cast<float>(norm);
    out.loss = static_cast<float>(loss);
  }
  out.skip = usable ? 0.0F : 1.0F;
  *scalars = out;
}

// The bf16 nearest to an f32, ties away from zero: then the difference of their bits always fits a
// signed 16-bit number, which ties to even would not.
__device__ __forceinline__ void Split(float value, std::uint16_t& high, std::uint16_t& low) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t rounded = (bits + 0x8000U) >> 16;
  high = static_cast<std::uint16_t>(rounded);
  low = static_cast<std::uint16_t>(bits - (rounded << 16));
}
__device__ __forceinline__ float Join(std::uint16_t high, std::uint16_t low) {
  const auto remainder = static_cast<std::int32_t>(static_cast<std::int16_t>(low));
  return __uint_as_float((static_cast<std::uint32_t>(high) << 16) +
                         static_cast<std::uint32_t>(remainder));
}

struct AdamWParams {
  float* master;
  std::uint16_t* compute;  // bf16 bits
  std::uint16_t* remainder;
  float* m;
  float* v;
  const float* grad;
  float one_minus_beta1, beta2, one_minus_beta2, eps;
};
// StepScalars and UpdateScalars as the elements use them.
struct AdamWStep {
  float step_size, inverse_sqrt_correction2, grad_scale;
};

// One element, as torch.optim.AdamW orders the arithmetic. Every rounding is spelled out, so that
// all forms of the kernel give the same bits.
__device__ __forceinline__ float UpdateElement(const AdamWParams& p, const AdamWStep& step,
                                               float decay, float grad, float weight, float& m,
                                               float& v) {
  m = __fmaf_rn(__fsub_rn(grad, m), p.one_minus_beta1, m);
  v = __fmaf_rn(v, p.beta2, __fmul_rn(__fmul_rn(p.one_minus_beta2, grad), grad));
  const float denominator = __fmaf_rn(__fsqrt_rn(v), step.inverse_sqrt_correction2, p.eps);
  return __fmaf_rn(-step.step_size, __fdiv_rn(m, denominator), __fmul_rn(weight, decay));
}

enum class MasterKind { kPlain, kSplit };

template <MasterKind kKind, int V>
__device__ __forceinline__ void UpdateVector(const AdamWParams& p, const AdamWStep& step,
                                             float decay, std::int64_t at) {
  float grad[V];
  float m[V];
  float v[V];
  float weight[V];
  LoadFloats<float, V>(p.grad + at, grad);
  LoadFloats<float, V>(p.m + at, m);
  LoadFloats<float, V>(p.v + at, v);
  Pack<std::uint16_t, V> high;
  Pack<std::uint16_t, V> low;
  if constexpr (kKind == MasterKind::kSplit) {
    high = Pack<std::uint16_t, V>::Load(p.compute + at);
    low = Pack<std::uint16_t, V>::Load(p.remainder + at);
#pragma unroll
    for (int i = 0; i < V; ++i) weight[i] = Join(high.at[i], low.at[i]);
  } else {
    LoadFloats<float, V>(p.master + at, weight);
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    weight[i] = UpdateElement(p, step, decay, grad[i] * step.grad_scale, weight[i], m[i], v[i]);
  }
  StoreFloats<float, V>(p.m + at, m);
  StoreFloats<float, V>(p.v + at, v);
  if constexpr (kKind == MasterKind::kSplit) {
#pragma unroll
    for (int i = 0; i < V; ++i) Split(weight[i], high.at[i], low.at[i]);
    high.Store(p.compute + at);
    low.Store(p.remainder + at);
  } else {
    StoreFloats<float, V>(p.master + at, weight);
  }
}

// A vector inside one run is updated as a whole; one that touches a run's edge, element by element.
template <MasterKind kKind, int V>
__global__ void __launch_bounds__(kThreads)
    AdamWKernel(const AdamWParams p, const __grid_constant__ DecayRuns runs,
                const std::int64_t first, const std::int64_t num_vectors,
                const StepScalars* step_scalars, const UpdateScalars* scalars) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= num_vectors || scalars->skip != 0) return;
  const auto lr = static_cast<float>(step_scalars->lr);
  const AdamWStep step{static_cast<float>(step_scalars->step_size),
                       static_cast<float>(step_scalars->inverse_sqrt_correction2),
                       scalars->grad_scale};
  const std::int64_t begin = first + at * V;
  const std::int64_t end = begin + V;
  int low = 0;  // the first run that ends behind `begin`
  for (int high = runs.count; low < high;) {
    const int middle = (low + high) / 2;
    if (runs.end[middle] > begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (int run = low; run < runs.count && runs.begin[run] < end; ++run) {
    const float decay = 1.0F - lr * runs.weight_decay[run];
    if (runs.begin[run] <= begin && runs.end[run] >= end) {
      UpdateVector<kKind, V>(p, step, decay, begin);
      return;
    }
    const std::int64_t stop = min(runs.end[run], end);
    for (std::int64_t i = max(runs.begin[run], begin); i < stop; ++i) {
      UpdateVector<kKind, 1>(p, step, decay, i);
    }
  }
}

template <MasterKind kKind>
cudaError_t LaunchAdamW(cudaStream_t stream, const AdamWParams& p, const DecayRuns& runs,
                        const StepScalars* step, const UpdateScalars* scalars) {
  constexpr int kV = 8;
  VectorWidth width(kV);
  for (const void* data : {static_cast<const void*>(p.master), static_cast<const void*>(p.m),
                           static_cast<const void*>(p.v), static_cast<const void*>(p.grad)}) {
    width.Take(data, sizeof(float));
  }
  for (const void* data : {p.compute, p.remainder}) width.Take(data, sizeof(std::uint16_t));
  const bool wide = width.elements() == kV;
  const int v = wide ? kV : 1;
  const std::int64_t first = runs.begin[0] / v * v;
  const std::int64_t num_vectors = CeilDiv(runs.end[runs.count - 1] - first, v);
  const auto blocks = static_cast<unsigned>(CeilDiv(num_vectors, kThreads));
  const auto kernel = wide ? AdamWKernel<kKind, kV> : AdamWKernel<kKind, 1>;
  kernel<<<blocks, kThreads, 0, stream>>>(p, runs, first, num_vectors, step, scalars);
  return cudaGetLastError();
}

template <int V>
struct SplitMap {
  static constexpr int kWidth = V;
  const float* master;
  std::uint16_t* compute;
  std::uint16_t* remainder;

  struct Regs {
    Pack<float, V> master;
  };
  __device__ __forceinline__ Regs Load(std::int64_t, std::int64_t col) const {
    return {Pack<float, V>::Load(master + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t, std::int64_t col, const Regs& in) const {
    Pack<std::uint16_t, V> high;
    Pack<std::uint16_t, V> low;
#pragma unroll
    for (int i = 0; i < V; ++i) Split(in.master.at[i], high.at[i], low.at[i]);
    high.Store(compute + col);
    low.Store(remainder + col);
  }
};

template <int V>
struct JoinMap {
  static constexpr int kWidth = V;
  const std::uint16_t* compute;
  const std::uint16_t* remainder;
  float* master;

  struct Regs {
    Pack<std::uint16_t, V> high, low;
  };
  __device__ __forceinline__ Regs Load(std::int64_t, std::int64_t col) const {
    return {Pack<std::uint16_t, V>::Load(compute + col),
            Pack<std::uint16_t, V>::Load(remainder + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t, std::int64_t col, const Regs& in) const {
    Pack<float, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.at[i] = Join(in.high.at[i], in.low.at[i]);
    out.Store(master + col);
  }
};

bool SplitIsWide(const Vector& master, const Vector& compute, const Vector& remainder) {
  VectorWidth width(8);
  for (const Vector& vector : {master, compute, remainder}) width.Take(AsRow(vector));
  return width.elements() == 8;
}

}  // namespace

std::int64_t GradStatsBlocks(std::int64_t size) {
  return std::clamp<std::int64_t>(CeilDiv(size, kThreads * 16), 1, kNumMultiprocessors * 8);
}

cudaError_t GradStats(cudaStream_t stream, const Vector& grad, StepStats* stats, double* scratch) {
  if (grad.size == 0) return cudaSuccess;
  auto* blocks = reinterpret_cast<BlockStats*>(scratch);
  const std::int64_t num_blocks = GradStatsBlocks(grad.size);
  const cudaError_t error = WithType(grad.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kV = 16 / static_cast<int>(sizeof(T));
    VectorWidth width(kV);
    width.Take(AsRow(grad));
    const auto kernel = width.elements() == kV ? GradStatsKernel<T, kV> : GradStatsKernel<T, 1>;
    kernel<<<static_cast<unsigned>(num_blocks), kThreads, 0, stream>>>(Data<const T>(grad),
                                                                       grad.size, blocks);
    return cudaGetLastError();
  });
  if (error != cudaSuccess) return error;
  FinishGradStatsKernel<<<1, 1024, 0, stream>>>(blocks, num_blocks, stats);
  return cudaGetLastError();
}

cudaError_t FinishStats(cudaStream_t stream, const StepStats* stats, float max_norm,
                        const StepScalars* step, UpdateScalars* scalars) {
  FinishStatsKernel<<<1, 1, 0, stream>>>(stats, max_norm, step, scalars);
  return cudaGetLastError();
}

cudaError_t AdamW(cudaStream_t stream, const AdamWArgs& args, const DecayRuns& runs,
                  const StepScalars* step, const UpdateScalars* scalars) {
  if (runs.count == 0) return cudaSuccess;
  const AdamWParams p{Data<float>(args.master),
                      Data<std::uint16_t>(args.compute),
                      Data<std::uint16_t>(args.remainder),
                      Data<float>(args.m),
                      Data<float>(args.v),
                      Data<const float>(args.grad),
                      1 - args.beta1,
                      args.beta2,
                      1 - args.beta2,
                      args.eps};
  if (p.remainder != nullptr) {
    return LaunchAdamW<MasterKind::kSplit>(stream, p, runs, step, scalars);
  }
  return LaunchAdamW<MasterKind::kPlain>(stream, p, runs, step, scalars);
}

cudaError_t SplitMaster(cudaStream_t stream, const Vector& master, const Vector& compute,
                        const Vector& remainder) {
  const auto launch = [&](auto width) {
    const SplitMap<width()> map{Data<const float>(master), Data<std::uint16_t>(compute),
                                Data<std::uint16_t>(remainder)};
    return Map<2>(stream, 1, master.size, true, map);
  };
  return SplitIsWide(master, compute, remainder) ? launch(std::integral_constant<int, 8>{})
                                                 : launch(std::integral_constant<int, 1>{});
}

cudaError_t JoinMaster(cudaStream_t stream, const Vector& compute, const Vector& remainder,
                       const Vector& master) {
  const auto launch = [&](auto width) {
    const JoinMap<width()> map{Data<const std::uint16_t>(compute),
                               Data<const std::uint16_t>(remainder), Data<float>(master)};
    return Map<2>(stream, 1, master.size, true, map);
  };
  return SplitIsWide(master, compute, remainder) ? launch(std::integral_constant<int, 8>{})
                                                 : launch(std::integral_constant<int, 1>{});
}

}  // namespace fsdp::kernels

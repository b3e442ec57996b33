// Initial weights: one thread per block of random bits, four values of f32 or f64 each.

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/initial_values.h"

namespace fsdp::kernels {
namespace {

inline constexpr int kThreads = 256;

using Kind = InitialDraw::Kind;

// The arithmetic of InitialBlock in worker/device/initial_values.h, rounding by rounding.
__device__ __forceinline__ void Draw(const InitialDraw& draw, std::uint64_t index,
                                     float (&out)[4]) {
  if (draw.kind == Kind::kZeros || draw.kind == Kind::kOnes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = draw.kind == Kind::kOnes ? 1 : 0;
    return;
  }
  const PhiloxBlock bits = PhiloxAt(draw.key, index);
  if (draw.kind == Kind::kUniform) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float twice = 2 * static_cast<float>(bits[i] >> 8) * 0x1p-24F;
      out[i] = __fmul_rn(__fsub_rn(twice, 1.0F), draw.scale);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const double log_of = __dmul_rn(static_cast<double>(bits[i] >> 8) + 1, 0x1p-24);
    const double turn = __dmul_rn(static_cast<double>(bits[i + 1] >> 8) + 1, 0x1p-24);
    const double radius = __dmul_rn(static_cast<double>(draw.scale), sqrt(-2 * log(log_of)));
    double sine = 0;
    double cosine = 0;
    sincos(__dmul_rn(2 * std::numbers::pi, turn), &sine, &cosine);
    out[i] = __double2float_rn(__dmul_rn(radius, cosine));
    out[i + 1] = __double2float_rn(__dmul_rn(radius, sine));
  }
}

// Element i of `out` is element first + i of the parameter; `skip` = first % 4 elements of the
// first block belong to somebody else.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FillInitialKernel(const InitialDraw draw, std::uint64_t first_block, int skip, T* out,
                      std::int64_t size, bool wide) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t begin = block * 4 - skip;
  if (begin >= size) return;
  float values[4];
  Draw(draw, first_block + static_cast<std::uint64_t>(block), values);
  if (wide && begin >= 0 && begin + 4 <= size) {
    Pack<T, 4> pack;
#pragma unroll
    for (int i = 0; i < 4; ++i) pack.at[i] = values[i];
    pack.Store(out + begin);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (begin + i >= 0 && begin + i < size) out[begin + i] = values[i];
  }
}

template <typename T>
cudaError_t Launch(cudaStream_t stream, const InitialDraw& draw, std::int64_t first,
                   const Vector& out) {
  const int skip = static_cast<int>(first % 4);
  const std::int64_t num_blocks = CeilDiv(out.size + skip, 4);
  VectorWidth width(4);
  width.Take(Data<T>(out) - skip, sizeof(T));
  FillInitialKernel<T>
      <<<static_cast<unsigned>(CeilDiv(num_blocks, kThreads)), kThreads, 0, stream>>>(
          draw, static_cast<std::uint64_t>(first) / 4, skip, Data<T>(out), out.size,
          width.elements() == 4);
  return cudaGetLastError();
}

}  // namespace

cudaError_t FillInitial(cudaStream_t stream, const InitialDraw& draw, std::int64_t first,
                        const Vector& out) {
  if (out.size == 0) return cudaSuccess;
  return out.dtype == DType::kF64 ? Launch<double>(stream, draw, first, out)
                                  : Launch<float>(stream, draw, first, out);
}

}  // namespace fsdp::kernels

// Sums over rows, in a fixed order: partial sums of row bands, then the bands in order.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/launch_overlap.cuh"

namespace fsdp::kernels {
namespace {

inline constexpr int kLanes = 32;
inline constexpr int kGroups = 8;  // rows that a block reads at once

// partial[band, c] = sum of x[r, c] over the band's rows. A block owns kLanes * V columns.
template <typename T, int V>
__global__ void __launch_bounds__(kLanes* kGroups)
    BandSumKernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                  std::int64_t band_rows, float* partial) {
  __shared__ float sums[kGroups][kLanes * V];
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x) * V;
  const std::int64_t begin = blockIdx.y * band_rows;
  const std::int64_t end = min(begin + band_rows, rows);
  float sum[V] = {};
  if (col < cols) {
#pragma unroll 4
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kGroups) {
      float value[V];
      LoadFloats<T, V>(x + row * stride + col, value);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sums[threadIdx.y][threadIdx.x * V + i] = sum[i];
  __syncthreads();
  for (int c = threadIdx.y * kLanes + threadIdx.x; c < kLanes * V; c += kLanes * kGroups) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kLanes * V + c;
    if (at >= cols) continue;
    float total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total += sums[g][c];
    partial[blockIdx.y * cols + at] = total;
  }
}

// blockIdx.y picks one of two sums.
template <typename T>
__global__ void __launch_bounds__(1024)
    SumPartialsKernel(const float* partial, const float* second_partial, std::int64_t rows,
                      std::int64_t cols, T* out, T* second_out, bool accumulate) {
  __shared__ float sums[32][33];
  if (blockIdx.y == 1) {
    partial = second_partial;
    out = second_out;
  }
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  // Launched while the kernel that writes the partial sums still runs.
  WaitForPreviousKernel();
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < rows; row += 32) sum += partial[row * cols + col];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  float total = accumulate ? ToFloat(out[col]) : 0;
#pragma unroll
  for (int g = 0; g < 32; ++g) total += sums[g][threadIdx.x];
  out[col] = FromFloat<T>(total);
}

// Enough bands to fill the chip, none of them shorter than 64 rows. Depends on the shape alone, so
// that the order of the sum never changes.
std::int64_t NumBands(std::int64_t rows, std::int64_t cols) {
  const std::int64_t column_blocks = CeilDiv(cols, 128);
  const std::int64_t wanted = CeilDiv(4 * kNumMultiprocessors, column_blocks);
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, rows / 64));
}

// Whether a kernel can be launched while the one before it still runs: on sm_90 and later.
cudaError_t LaunchesOverlap(bool& overlap) {
  int device = 0;
  int major = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const cudaError_t error =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  overlap = major >= 9;
  return error;
}

}  // namespace

std::size_t ColumnSumScratchFloats(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(NumBands(rows, cols) * cols);
}

cudaError_t SumPartials(cudaStream_t stream, const float* partial, std::int64_t rows,
                        const Vector& out, bool accumulate, const float* second_partial,
                        const Vector& second_out) {
  bool overlap = false;
  if (cudaError_t error = LaunchesOverlap(overlap); error != cudaSuccess) return error;
  return WithType(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim =
        dim3(static_cast<unsigned>(CeilDiv(out.size, 32)), second_partial == nullptr ? 1 : 2);
    config.blockDim = dim3(32, 32);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = overlap ? 1 : 0;
    return cudaLaunchKernelEx(&config, SumPartialsKernel<T>, partial, second_partial, rows,
                              out.size, Data<T>(out), Data<T>(second_out), accumulate);
  });
}

cudaError_t ColumnSum(cudaStream_t stream, const Matrix& x, const Vector& out, bool accumulate,
                      float* scratch) {
  const std::int64_t bands = x.rows == 0 ? 0 : NumBands(x.rows, x.cols);
  if (bands > 0) {
    const std::int64_t band_rows = CeilDiv(x.rows, bands);
    const cudaError_t error = WithType(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      constexpr int kV = 16 / static_cast<int>(sizeof(T));
      VectorWidth width(kV);
      width.Take(x);
      const bool wide = width.elements() == kV;
      const dim3 grid(static_cast<unsigned>(CeilDiv(x.cols, kLanes * (wide ? kV : 1))),
                      static_cast<unsigned>(bands));
      const auto kernel = wide ? BandSumKernel<T, kV> : BandSumKernel<T, 1>;
      kernel<<<grid, dim3(kLanes, kGroups), 0, stream>>>(Data<const T>(x), x.rows, x.cols, x.stride,
                                                         band_rows, scratch);
      return cudaGetLastError();
    });
    if (error != cudaSuccess) return error;
  }
  return SumPartials(stream, scratch, bands, out, accumulate, nullptr, {});
}

}  // namespace fsdp::kernels

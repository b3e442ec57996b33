#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_MAP_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_MAP_CUH_

// One pass over a matrix, V elements at a time. A functor F says what happens to a vector:
//   static constexpr int kWidth            V
//   struct Regs
//   Regs Load(int64 row, int64 col)        reads everything at (row, col .. col + V)
//   void Store(int64 row, int64 col, Regs) computes and writes there
// Each thread loads kUnroll vectors before it stores the first, so that enough bytes are in flight;
// an output may therefore alias an input only element by element.

#include <algorithm>

#include "worker/device/cuda/kernels/device_math.cuh"

namespace fsdp::kernels {

inline constexpr int kMapThreads = 256;

template <int kUnroll, typename F>
__global__ void __launch_bounds__(kMapThreads)
    MapFlatKernel(const F f, const std::int64_t num_vectors) {
  const std::int64_t base =
      static_cast<std::int64_t>(blockIdx.x) * (kMapThreads * kUnroll) + threadIdx.x;
  typename F::Regs regs[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = base + u * kMapThreads;
    if (i < num_vectors) regs[u] = f.Load(0, i * F::kWidth);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = base + u * kMapThreads;
    if (i < num_vectors) f.Store(0, i * F::kWidth, regs[u]);
  }
}

template <int kUnroll, typename F>
__global__ void __launch_bounds__(kMapThreads)
    MapRowsKernel(const F f, const std::int64_t first_row, const std::uint32_t num_vectors,
                  const FastDivide per_row) {
  const std::uint32_t base = blockIdx.x * (kMapThreads * kUnroll) + threadIdx.x;
  typename F::Regs regs[kUnroll];
  std::int64_t rows[kUnroll];
  std::uint32_t cols[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t i = base + u * kMapThreads;
    const std::uint32_t row = per_row.Quotient(i);
    rows[u] = first_row + row;
    cols[u] = (i - row * per_row.divisor) * F::kWidth;
    if (i < num_vectors) regs[u] = f.Load(rows[u], cols[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (base + u * kMapThreads < num_vectors) f.Store(rows[u], cols[u], regs[u]);
  }
}

// Applies f to [rows, cols]; cols is a multiple of F::kWidth. `flat` treats the matrix as one row,
// which the caller allows when every operand is packed.
template <int kUnroll, typename F>
cudaError_t Map(cudaStream_t stream, std::int64_t rows, std::int64_t cols, bool flat, const F& f) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  constexpr int kPerBlock = kMapThreads * kUnroll;
  if (flat) {
    const std::int64_t num_vectors = rows * cols / F::kWidth;
    const auto blocks = static_cast<unsigned>(CeilDiv(num_vectors, kPerBlock));
    MapFlatKernel<kUnroll, F><<<blocks, kMapThreads, 0, stream>>>(f, num_vectors);
    return cudaGetLastError();
  }
  const std::int64_t per_row = cols / F::kWidth;
  // Indexes stay below 2^31; a larger matrix takes several launches.
  const std::int64_t rows_per_launch = std::max<std::int64_t>(1, (std::int64_t{1} << 30) / per_row);
  for (std::int64_t row = 0; row < rows; row += rows_per_launch) {
    const std::int64_t num_vectors = std::min(rows_per_launch, rows - row) * per_row;
    const auto blocks = static_cast<unsigned>(CeilDiv(num_vectors, kPerBlock));
    MapRowsKernel<kUnroll, F>
        <<<blocks, kMapThreads, 0, stream>>>(f, row, static_cast<std::uint32_t>(num_vectors),
                                             FastDivide(static_cast<std::uint32_t>(per_row)));
  }
  return cudaGetLastError();
}

inline bool Packed(const Matrix& matrix) {
  return matrix.stride == matrix.cols || matrix.rows <= 1;
}

inline Matrix AsRow(const Vector& vector) {
  return Matrix::Packed(vector.data, vector.dtype, 1, vector.size);
}

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_MAP_CUH_

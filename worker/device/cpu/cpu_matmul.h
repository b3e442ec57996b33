#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_MATMUL_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_MATMUL_H_

// Matrix products of the CPU backend (docs/adr/0002-cpu-matmul.md says why these): f32 by oneDNN's
// sgemm, bf16 by oneDNN's matmul primitive where the CPU has avx512_bf16 and by conversion to f32
// elsewhere, f64 by our own blocked loop.
//
// The library never runs threads of its own here: a product is cut into tiles, the pool runs one
// serial library call per tile, and K is never cut. The tiles depend on the shape and the number of
// threads alone, so the same inputs give the same bits whichever thread runs a tile.
//
// Thread rule: Run may be called from any thread; the serial Gemm functions too.

#include <cstdint>

#include "absl/status/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/thread_pool.h"
#include "worker/device/ops.h"
#include "worker/device/tensor.h"

namespace fsdp::cpu {

// How bf16 products are formed; both accumulate in f32 and round once.
enum class Bf16Path { kNative, kConvert };
// What this machine's CPU can do.
Bf16Path DetectBf16Path();

class CpuMatMul {
 public:
  CpuMatMul(const KernelSet& kernels, ThreadPool& pool, Bf16Path bf16_path)
      : kernels_(kernels), pool_(pool), bf16_path_(bf16_path) {}

  // As Ops::MatMul, whose checks have passed; runs at once.
  //   INTERNAL  a oneDNN call failed.
  absl::Status Run(const Matrix& a, Transpose trans_a, const Matrix& b, Transpose trans_b,
                   const Vector& bias, const Matrix& out, bool accumulate);

  [[nodiscard]] Bf16Path bf16_path() const { return bf16_path_; }

 private:
  struct Problem;
  absl::Status RunTiles(const Problem& problem);
  absl::Status RunTile(const Problem& problem, std::int64_t row, std::int64_t col,
                       std::int64_t rows, std::int64_t cols);
  absl::Status RunTileF32(const Problem& p, std::int64_t row, std::int64_t col, std::int64_t rows,
                          std::int64_t cols);
  absl::Status RunTileBf16(const Problem& p, std::int64_t row, std::int64_t col, std::int64_t rows,
                           std::int64_t cols);
  void RunTileF64(const Problem& p, std::int64_t row, std::int64_t col, std::int64_t rows,
                  std::int64_t cols);
  absl::Status RunConverted(const Problem& problem);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  const Bf16Path bf16_path_;
};

// c[m,n] = alpha op(a) op(b) + beta c on the calling thread alone; row-major with row strides.
// beta = 0 does not read c.
absl::Status GemmSerial(const KernelSet& kernels, Transpose trans_a, Transpose trans_b,
                        std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                        std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta,
                        float* c, std::int64_t c_stride);
absl::Status GemmSerial(const KernelSet& kernels, Transpose trans_a, Transpose trans_b,
                        std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                        const double* a, std::int64_t a_stride, const double* b,
                        std::int64_t b_stride, double beta, double* c, std::int64_t c_stride);

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_MATMUL_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_FP8_PRODUCT_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_FP8_PRODUCT_H_

// One square product of e4m3 operands into bf16 through cuBLASLt, to measure what it reaches.
//
// Thread rule: one thread at a time.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cuda/unique_handle.h"

namespace fsdp {

class Fp8Product {
 public:
  // Of [edge, edge] matrices. `workspace`: of the device, outlives this. Null where the device or
  // the library has no such product.
  static absl::StatusOr<std::unique_ptr<Fp8Product>> Create(std::int64_t edge,
                                                            std::span<std::byte> workspace);

  // out = a b^T, row by row.
  absl::Status Run(cudaStream_t stream, const void* a, const void* b, void* out);

 private:
  explicit Fp8Product(std::span<std::byte> workspace) : workspace_(workspace) {}

  const std::span<std::byte> workspace_;
  UniqueHandle<cublasLtHandle_t, cublasLtDestroy> handle_;
  UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> descriptor_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> in_, out_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_FP8_PRODUCT_H_

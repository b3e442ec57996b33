#ifndef FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_

// Matrix products through cuBLASLt: bf16 and f32 operands, f32 accumulation, TF32 never used. One
// plan per (shape, strides, types, alignment, epilogue) is found by the library's heuristic at the
// first call and kept, so a step's matmuls cost one hash look-up on the host.
//
// Thread rule: one thread at a time.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cuda/unique_handle.h"
#include "worker/device/ops.h"

namespace fsdp {

class MatMulPlanner {
 public:
  // `workspace` is used by products on `workspace_stream`; on other streams plans need none.
  static absl::StatusOr<std::unique_ptr<MatMulPlanner>> Create(std::span<std::byte> workspace,
                                                               cudaStream_t workspace_stream);

  // out (+)= op(a) op(b) + bias with validated, non-empty operands. `bias` may be null and has
  // out's dtype.
  //   UNIMPLEMENTED  the library has no kernel for these operands
  absl::Status Run(cudaStream_t stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                   Transpose trans_b, const void* bias, const Matrix& out, bool accumulate);

  [[nodiscard]] std::size_t num_plans() const { return plans_.size(); }

 private:
  struct Key {
    std::int64_t m, n, k, lda, ldb, ldo;
    std::uint8_t in_type, out_type, trans_a, trans_b, has_bias, accumulate, has_workspace;
    std::uint8_t align_a, align_b, align_out;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  using Descriptor = UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
  struct Plan {
    Descriptor descriptor;
    // In cuBLASLt's column-major terms: `left` is our b, `right` our a.
    Layout left, right, out;
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace_bytes = 0;
  };

  MatMulPlanner() = default;
  absl::StatusOr<Plan*> FindOrMake(const Key& key);
  absl::Status Describe(const Key& key, Plan& plan);
  absl::Status Choose(const Key& key, Plan& plan);

  UniqueHandle<cublasLtHandle_t, cublasLtDestroy> handle_;
  std::span<std::byte> workspace_;
  cudaStream_t workspace_stream_ = nullptr;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_

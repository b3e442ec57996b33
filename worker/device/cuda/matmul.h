#ifndef FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_

// Matrix products through cuBLASLt: bf16 and f32 operands, f32 accumulation, TF32 never used. One
// plan per (shape, strides, types, alignment, epilogue) is made at the first call and kept, so a
// step's matmuls cost one hash look-up on the host. A large product's first call times what the
// library's heuristic proposes, on the operands at hand, and remembers the fastest on disk; others
// take the first proposal.
//
// Thread rule: one thread at a time.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cuda/matmul_cache.h"
#include "worker/device/cuda/unique_handle.h"
#include "worker/device/ops.h"

namespace fsdp {

struct MatMulOptions {
  // Used by products on `workspace_stream`; on other streams plans need none.
  std::span<std::byte> workspace;
  cudaStream_t workspace_stream = nullptr;
  // False takes the heuristic's first proposal always: the same one in every run.
  bool time_algorithms = true;
  std::string cache_directory;  // empty: timed anew in every process
  std::string device;           // model name, for the cache
};

class MatMulPlanner {
 public:
  static absl::StatusOr<std::unique_ptr<MatMulPlanner>> Create(const MatMulOptions& options);

  // What is done to a product before it is stored.
  struct Epilogue {
    const void* bias = nullptr;  // [N] of out's dtype, or null
    // bf16 with out's stride and alignment of 16 bytes, or null: it gets the product and bias, and
    // out gets GELU (tanh form) of them.
    void* gelu_input = nullptr;
  };
  // out (+)= op(a) op(b) + bias with validated, non-empty operands.
  //   UNIMPLEMENTED  the library has no kernel for these operands
  absl::Status Run(cudaStream_t stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                   Transpose trans_b, const Epilogue& epilogue, const Matrix& out, bool accumulate);

  [[nodiscard]] std::size_t num_plans() const { return plans_.size(); }

 private:
  struct Key {
    std::int64_t m, n, k, lda, ldb, ldo;
    std::uint8_t in_type, out_type, trans_a, trans_b, epilogue, accumulate, has_workspace;
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

  using Proposals = std::vector<cublasLtMatmulHeuristicResult_t>;
  // The operands of one call, as cuBLASLt takes them.
  struct Call {
    cudaStream_t stream;
    const void *left, *right;
    void* out;
    Epilogue epilogue;
    bool accumulate;
  };

  explicit MatMulPlanner(const MatMulOptions& options)
      : options_(options), cache_(options.cache_directory, options.device) {}
  static std::string ShapeOf(const Key& key);
  absl::StatusOr<Plan*> FindOrMake(const Key& key, const Call& call);
  absl::Status Describe(const Key& key, Plan& plan);
  absl::StatusOr<Proposals> Propose(const Key& key, const Plan& plan, int most);
  absl::Status Choose(const Key& key, const Call& call, Plan& plan);
  // The fastest of `proposals` on the call's operands.
  absl::StatusOr<cublasLtMatmulHeuristicResult_t> Fastest(const Proposals& proposals,
                                                          const Call& call, Plan& plan);
  absl::Status Launch(const Plan& plan, const Call& call);

  const MatMulOptions options_;
  MatMulCache cache_;
  UniqueHandle<cublasLtHandle_t, cublasLtDestroy> handle_;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_ATTENTION_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_ATTENTION_H_

// Fused attention through cuDNN's backend graph API. The library is opened at run time; without it
// Create says so and the own kernels are used. A plan is one operation graph (matmul, scale, causal
// mask by index comparison, softmax in pieces, matmul; and its backward) that the library fuses
// into one kernel. Queries, keys and values are strided views of the packed projections: nothing is
// transposed or copied.
//
// Thread rule: one thread at a time. Lifetime: plans die before their CudnnAttention.

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// Everything that a plan depends on. Strides are elements between tokens; all tensors are bf16.
struct CudnnAttentionKey {
  std::int64_t batch = 0, seq = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t qkv_stride = 0, out_stride = 0;
  std::int64_t d_out_stride = 0, d_qkv_stride = 0;  // backward
  float scale = 0;
  bool causal = false;
  bool backward = false;
  bool deterministic = false;  // backward: dQ through a workspace instead of unordered additions

  auto operator<=>(const CudnnAttentionKey&) const = default;
};

struct CudnnAttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;          // forward writes, backward reads
  float* lse = nullptr;         // [B, Hq, S], likewise
  const void* d_out = nullptr;  // backward
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

class CudnnAttentionPlan {
 public:
  virtual ~CudnnAttentionPlan() = default;
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  // Such as "cudnn 9.19.0 engine 5", for the plan's print-out.
  [[nodiscard]] virtual std::string name() const = 0;
  virtual absl::Status Run(cudaStream_t stream, const CudnnAttentionTensors& tensors,
                           std::span<std::byte> scratch) = 0;
};

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  //   FAILED_PRECONDITION  built without the header, or the library cannot be opened or is older
  //                        than 9.10 (-inf in masks)
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Create();
  //   UNIMPLEMENTED  the library has no engine for this shape
  virtual absl::StatusOr<std::unique_ptr<CudnnAttentionPlan>> MakePlan(
      const CudnnAttentionKey& key) = 0;
  // Such as "9.19.0".
  [[nodiscard]] virtual std::string version() const = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_ATTENTION_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_ATTENTION_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_ATTENTION_H_

// Which implementation attends: cuDNN's fused kernels, our tensor-core kernels, or our f32 kernels.
// Where sequences are packed from documents it is ours: cuDNN's know nothing of them. The choice is
// made once per shape and kept, so a call costs one look-up.
//
// Thread rule: one thread at a time.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cudnn_attention.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/ops.h"

namespace fsdp {

class CudaAttention {
 public:
  //   FAILED_PRECONDITION  `backend` is kCudnn and the library cannot be opened
  static absl::StatusOr<std::unique_ptr<CudaAttention>> Create(AttentionBackend backend,
                                                               bool deterministic);
  // Operands were checked. Errors as Ops::AttentionForward.
  absl::Status Forward(cudaStream_t stream, const Matrix& qkv, const AttentionShape& shape,
                       std::span<const std::int32_t> document_begins, const Matrix& out,
                       const Vector& lse, std::span<std::byte> scratch);
  absl::Status Backward(cudaStream_t stream, const Matrix& d_out, const Matrix& qkv,
                        const Matrix& out, const Vector& lse, const AttentionShape& shape,
                        std::span<const std::int32_t> document_begins, const Matrix& d_qkv,
                        std::span<std::byte> scratch);
  // For packed operands. Enough for whichever implementation is chosen.
  std::size_t ScratchBytes(const AttentionShape& shape, DType dtype, bool backward);
  // The chosen implementation for packed operands, as Ops::ChosenAttention names it.
  absl::StatusOr<std::string> KernelName(const AttentionShape& shape, DType dtype, bool backward);

 private:
  struct Choice {
    CudnnAttentionPlan* cudnn = nullptr;  // null: the own kernels
    bool tensor_cores = false;            // of the own kernels
  };

  CudaAttention() = default;
  absl::StatusOr<Choice> Choose(const kernels::AttentionArgs& args, bool documents, bool backward);
  // The cuDNN plan for these operands, or null when the own kernels are to be used.
  absl::StatusOr<CudnnAttentionPlan*> PlanFor(const CudnnAttentionKey& key);

  AttentionBackend backend_ = AttentionBackend::kAuto;
  bool deterministic_ = false;
  std::unique_ptr<CudnnAttention> cudnn_;  // null without the library
  std::map<CudnnAttentionKey, std::unique_ptr<CudnnAttentionPlan>> plans_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_ATTENTION_H_

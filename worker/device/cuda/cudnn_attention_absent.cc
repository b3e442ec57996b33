// Stands in for cudnn_attention.cc where the toolkit has no cuDNN header.

#include "worker/device/cuda/cudnn_attention.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Create() {
  return absl::FailedPreconditionError("built without cuDNN's header");
}

}  // namespace fsdp

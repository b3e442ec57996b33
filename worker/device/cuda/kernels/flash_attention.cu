#include "worker/device/cuda/kernels/kernels.h"
namespace fsdp::kernels {
bool FlashAttentionTakes(const AttentionArgs&) { return false; }
cudaError_t FlashAttentionForward(cudaStream_t, const AttentionArgs&) {
  return cudaErrorInvalidValue;
}
cudaError_t FlashAttentionBackward(cudaStream_t, const AttentionArgs&) {
  return cudaErrorInvalidValue;
}
}  // namespace fsdp::kernels

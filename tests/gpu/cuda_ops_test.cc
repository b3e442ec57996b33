// The CUDA backend under the contract of worker/device/{device,ops}.h, once with each attention
// implementation.

#include "tests/contract/device_ops/device_ops_contract.h"
#include "worker/device/cuda/cuda_device.h"

namespace fsdp {
namespace {

std::function<absl::StatusOr<std::unique_ptr<Device>>()> With(AttentionBackend attention) {
  return [attention] { return CreateCudaDevice({.attention = attention, .deterministic = true}); };
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceOpsContract,
                         ::testing::Values(Backend{.name = "cudnn",
                                                   .create = With(AttentionBackend::kAuto),
                                                   .bf16_attention_spreads_nonfinite = true},
                                           Backend{.name = "own",
                                                   .create = With(AttentionBackend::kOwn),
                                                   .bf16_attention_spreads_nonfinite = true}),
                         BackendName);

}  // namespace
}  // namespace fsdp

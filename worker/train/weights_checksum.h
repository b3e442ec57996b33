#ifndef FSDPCTL_WORKER_TRAIN_WEIGHTS_CHECKSUM_H_
#define FSDPCTL_WORKER_TRAIN_WEIGHTS_CHECKSUM_H_

// One number for everything that training has changed: equal after two runs only if they made the
// same bits.

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/train/engine.h"

namespace fsdp {

// CRC-32C of this rank's rows of every parameter in unit order: the master weights, then m, then v
// of each. Waits for the device; reads 12 bytes a parameter through 16 MiB of host memory. With
// bf16 weights the masters are put together in the gradients' memory (Engine::OpenWeights).
absl::StatusOr<std::uint32_t> WeightsChecksum(Engine& engine, Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_WEIGHTS_CHECKSUM_H_

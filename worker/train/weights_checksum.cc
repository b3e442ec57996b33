#include "worker/train/weights_checksum.h"

#include <algorithm>

#include "proto/support/crc32c.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{16} << 20;

absl::Status Extend(const Vector& values, Device& device, DeviceBuffer& staging,
                    std::uint32_t& crc) {
  const auto* from = static_cast<const std::byte*>(values.data);
  const auto total = static_cast<std::size_t>(values.size_bytes());
  for (std::size_t at = 0; at < total; at += staging.size_bytes()) {
    const std::size_t part = std::min(staging.size_bytes(), total - at);
    RETURN_IF_ERROR(device.Copy(staging.data(), from + at, part, device.compute()));
    RETURN_IF_ERROR(device.Synchronize(device.compute()));
    crc = ExtendCrc32c(crc, {static_cast<const std::byte*>(staging.data()), part});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::uint32_t> WeightsChecksum(Engine& engine, Device& device) {
  ASSIGN_OR_RETURN(const std::vector<ShardTensor> tensors, engine.OpenWeights());
  ASSIGN_OR_RETURN(const auto staging, device.AllocateHost(kStagingBytes));
  std::uint32_t crc = 0;
  for (const ShardTensor& tensor : tensors) {
    for (const Vector& part : {tensor.master, tensor.m, tensor.v}) {
      RETURN_IF_ERROR(Extend(part, device, *staging, crc));
    }
  }
  return crc;
}

}  // namespace fsdp

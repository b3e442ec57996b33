#ifndef FSDPCTL_PROTO_SUPPORT_CRC32C_H_
#define FSDPCTL_PROTO_SUPPORT_CRC32C_H_

// CRC-32C (Castagnoli), as in iSCSI and ext4. About 10 GB/s with SSE 4.2, 1 GB/s without.

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp {

// The checksum of everything so far (`crc`, 0 at the beginning) and then `bytes`.
std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> bytes);

inline std::uint32_t Crc32c(std::span<const std::byte> bytes) { return ExtendCrc32c(0, bytes); }

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_CRC32C_H_

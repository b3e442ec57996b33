#ifndef FSDPCTL_WORKER_OPTIM_PHILOX_H_
#define FSDPCTL_WORKER_OPTIM_PHILOX_H_

// Philox 4x32-10: random bits as a pure function of (key, counter), so that any rank can make any
// part of a parameter and all ranks agree.

#include <array>
#include <cstdint>

namespace fsdp {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline PhiloxBlock Philox4x32(std::uint64_t key, std::uint64_t counter) {
  PhiloxBlock x{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0,
                0};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_OPTIM_PHILOX_H_

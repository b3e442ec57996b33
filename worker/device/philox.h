#ifndef FSDPCTL_WORKER_DEVICE_PHILOX_H_
#define FSDPCTL_WORKER_DEVICE_PHILOX_H_

// Philox4x32-10 (Salmon et al., SC'11): random bits as a pure function of (key, counter), so that
// any element of a random stream can be had without the ones before it, and all ranks agree on it.

#include <array>
#include <cstdint>

namespace fsdp {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// constexpr: device code calls it too.
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, std::uint64_t key) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ULL * counter[0];
    const std::uint64_t product1 = 0xCD9E8D57ULL * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

// Block `index` of the stream of `key`: the counter's upper half stays zero.
constexpr PhiloxBlock PhiloxAt(std::uint64_t key, std::uint64_t index) {
  return Philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_PHILOX_H_

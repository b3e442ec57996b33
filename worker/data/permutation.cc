#include "worker/data/permutation.h"

#include <bit>

namespace fsdp {
namespace {

constexpr int kRounds = 6;

std::uint64_t Scramble(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t PassKey(std::uint64_t seed, std::int64_t pass) {
  return Scramble(Scramble(seed) ^ static_cast<std::uint64_t>(pass));
}

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)),
      key_(key),
      half_bits_((std::bit_width(static_cast<std::uint64_t>(size - 1)) + 1) / 2) {}

std::int64_t Permutation::operator()(std::int64_t index) const {
  if (size_ <= 1) return index;
  const std::uint64_t mask = (1ULL << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t next =
          left ^ (Scramble(key_ ^ (right + (static_cast<std::uint64_t>(round) << 56))) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace fsdp

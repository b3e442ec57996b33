#include "worker/data/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdp {
namespace {

// Odd constants with about half of their bits set.
constexpr std::uint64_t kA = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t kB = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kC = 0xD6E8FEB86659FD93ULL;

std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= kC;
  x ^= x >> 29;
  x *= kB;
  return x ^ (x >> 32);
}

}  // namespace

ContentHash::ContentHash(std::uint64_t seed)
    : lanes_{seed + kA, seed ^ kB, seed - kC, Mix(seed + 1)} {}

void ContentHash::AddStripe(const std::byte* stripe) {
  for (std::size_t lane = 0; lane < 4; ++lane) {
    std::uint64_t word;
    std::memcpy(&word, stripe + lane * 8, 8);
    lanes_[lane] = std::rotl(lanes_[lane] + word * kB, 31) * kA;
  }
}

void ContentHash::Add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  total_bytes_ += bytes.size();
  if (tail_size_ > 0) {
    const std::size_t count = std::min(bytes.size(), kStripe - tail_size_);
    std::memcpy(tail_.data() + tail_size_, bytes.data(), count);
    tail_size_ += count;
    bytes = bytes.subspan(count);
    if (tail_size_ < kStripe) return;
    AddStripe(tail_.data());
    tail_size_ = 0;
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) AddStripe(bytes.data());
  if (!bytes.empty()) std::memcpy(tail_.data(), bytes.data(), bytes.size());
  tail_size_ = bytes.size();
}

std::uint64_t ContentHash::Finish() const {
  std::uint64_t hash = Mix(total_bytes_ + kA);
  for (const std::uint64_t lane : lanes_) hash = Mix(hash ^ lane) + kC;
  for (std::size_t i = 0; i < tail_size_; ++i) {
    hash = std::rotl(hash ^ (static_cast<std::uint64_t>(tail_[i]) * kA), 11) * kB;
  }
  return Mix(hash);
}

}  // namespace fsdp

#include "worker/comm/host_reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdp {
namespace {

// Elements summed at a time: the accumulators stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

struct Plain {
  template <typename T>
  static T Load(T value) {
    return value;
  }
  template <typename T>
  static T Store(T value) {
    return value;
  }
};

struct Bf16 {
  static float Load(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
  }
  // Round to nearest even; NaN stays NaN.
  static std::uint16_t Store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<std::uint16_t>(nan ? ((bits >> 16) | 0x40U) : rounded);
  }
};

template <typename Element, typename Sum, typename Codec>
void SumBlocks(std::span<const void* const> sources, std::int64_t size, void* out) {
  Sum sums[kBlock];
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, size - begin);
    const auto* first = static_cast<const Element*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = Codec::Load(first[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const auto* next = static_cast<const Element*>(sources[s]) + begin;
      for (std::int64_t i = 0; i < count; ++i) sums[i] += Codec::Load(next[i]);
    }
    auto* to = static_cast<Element*>(out) + begin;
    for (std::int64_t i = 0; i < count; ++i) to[i] = Codec::Store(sums[i]);
  }
}

}  // namespace

void SumInOrder(DType dtype, std::span<const void* const> sources, std::int64_t size, void* out) {
  switch (dtype) {
    case DType::kF64:
      return SumBlocks<double, double, Plain>(sources, size, out);
    case DType::kF32:
      return SumBlocks<float, float, Plain>(sources, size, out);
    case DType::kBf16:
      return SumBlocks<std::uint16_t, float, Bf16>(sources, size, out);
    case DType::kI32:
      // Unsigned, so that overflow wraps.
      return SumBlocks<std::uint32_t, std::uint32_t, Plain>(sources, size, out);
    case DType::kU16:
      return;
  }
}

}  // namespace fsdp

#ifndef FSDPCTL_WORKER_DEVICE_INITIAL_VALUES_H_
#define FSDPCTL_WORKER_DEVICE_INITIAL_VALUES_H_

// Initial weights as a pure function of (key, index): element i needs none of the others, so any
// rank draws its part, on any backend. Values are f32. Uniform draws are the same bits everywhere;
// normal ones are formed in f64 and rounded once, so that the libraries' last bits of log, sin and
// cos move a result by at most one unit of f32, and that only next to a tie.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

#include "worker/device/philox.h"

namespace fsdp {

struct InitialDraw {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  float scale = 0;  // standard deviation, or bound of the uniform distribution on [-scale, scale)
  std::uint64_t key = 0;
};

// The four values of one block of random bits.
inline std::array<float, 4> InitialBlock(const InitialDraw& draw, std::uint64_t index) {
  const PhiloxBlock bits = PhiloxAt(draw.key, index);
  std::array<float, 4> out;
  if (draw.kind == InitialDraw::Kind::kUniform) {
    for (std::size_t i = 0; i < 4; ++i) {
      out[i] = (2.0F * static_cast<float>(bits[i] >> 8) * 0x1p-24F - 1.0F) * draw.scale;
    }
    return out;
  }
  // In (0, 1]: a logarithm of it is finite.
  const auto unit = [&](std::size_t i) {
    return (static_cast<double>(bits[i] >> 8) + 1) * 0x1p-24;
  };
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = static_cast<double>(draw.scale) * std::sqrt(-2 * std::log(unit(i)));
    const double angle = 2 * std::numbers::pi * unit(i + 1);
    out[i] = static_cast<float>(radius * std::cos(angle));
    out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return out;
}

// Elements [first, first + out.size()); T is float or double.
template <typename T>
void FillInitialValues(const InitialDraw& draw, std::int64_t first, std::span<T> out) {
  using Kind = InitialDraw::Kind;
  if (draw.kind == Kind::kZeros || draw.kind == Kind::kOnes) {
    std::fill(out.begin(), out.end(), draw.kind == Kind::kOnes ? T{1} : T{0});
    return;
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t index = static_cast<std::uint64_t>(first) + done;
    const std::array<float, 4> values = InitialBlock(draw, index / 4);
    for (std::size_t lane = index % 4; lane < 4 && done < out.size(); ++lane, ++done) {
      out[done] = values[lane];
    }
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_INITIAL_VALUES_H_

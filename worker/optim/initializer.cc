#include "worker/optim/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "worker/device/philox.h"

namespace fsdp {
namespace {

std::uint64_t KeyOf(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  // One round of splitmix64 keeps neighbouring seeds apart.
  std::uint64_t key = hash + (seed + 1) * 0x9E3779B97F4A7C15ULL;
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9ULL;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBULL;
  return key ^ (key >> 31);
}

// In (0, 1]: a logarithm of it is finite.
float OpenUnit(std::uint32_t bits) { return (static_cast<float>(bits >> 8) + 1.0F) * 0x1p-24F; }

std::array<float, 4> UniformBlock(const PhiloxBlock& bits, float bound) {
  std::array<float, 4> out;
  for (std::size_t i = 0; i < 4; ++i) {
    out[i] = (2.0F * static_cast<float>(bits[i] >> 8) * 0x1p-24F - 1.0F) * bound;
  }
  return out;
}

std::array<float, 4> NormalBlock(const PhiloxBlock& bits, float std) {
  std::array<float, 4> out;
  for (std::size_t i = 0; i < 4; i += 2) {
    const float radius = std * std::sqrt(-2.0F * std::log(OpenUnit(bits[i])));
    const float angle = 2.0F * std::numbers::pi_v<float> * OpenUnit(bits[i + 1]);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
  return out;
}

}  // namespace

void FillInitial(const InitRule& rule, std::uint64_t seed, std::string_view name,
                 std::int64_t first, std::span<float> out) {
  if (rule.kind == InitRule::Kind::kZeros || rule.kind == InitRule::Kind::kOnes) {
    std::fill(out.begin(), out.end(), rule.kind == InitRule::Kind::kOnes ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t key = KeyOf(seed, name);
  const auto scale = static_cast<float>(rule.scale);
  const bool normal = rule.kind == InitRule::Kind::kNormal;
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t index = static_cast<std::uint64_t>(first) + done;
    const PhiloxBlock bits = PhiloxAt(key, index / 4);
    const std::array<float, 4> values =
        normal ? NormalBlock(bits, scale) : UniformBlock(bits, scale);
    for (std::size_t lane = index % 4; lane < 4 && done < out.size(); ++lane, ++done) {
      out[done] = values[lane];
    }
  }
}

void FillInitialParallel(const InitRule& rule, std::uint64_t seed, std::string_view name,
                         std::int64_t first, std::span<float> out) {
  constexpr std::size_t kWorthAThread = std::size_t{1} << 18;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = std::min(cores, out.size() / kWorthAThread + 1);
  const std::size_t part = (out.size() + threads - 1) / threads;
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) {
    const std::size_t begin = std::min(out.size(), i * part);
    const std::size_t count = std::min(part, out.size() - begin);
    others.emplace_back([=, &rule] {
      FillInitial(rule, seed, name, first + static_cast<std::int64_t>(begin),
                  out.subspan(begin, count));
    });
  }
  FillInitial(rule, seed, name, first, out.first(std::min(part, out.size())));
  for (std::thread& thread : others) thread.join();
}

}  // namespace fsdp

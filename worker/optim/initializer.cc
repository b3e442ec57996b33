#include "worker/optim/initializer.h"

#include <algorithm>
#include <thread>
#include <vector>

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

}  // namespace

InitialDraw InitialDrawOf(const InitRule& rule, std::uint64_t seed, std::string_view name) {
  InitialDraw draw;
  draw.key = KeyOf(seed, name);
  draw.scale = static_cast<float>(rule.scale);
  switch (rule.kind) {
    case InitRule::Kind::kZeros:
      draw.kind = InitialDraw::Kind::kZeros;
      break;
    case InitRule::Kind::kOnes:
      draw.kind = InitialDraw::Kind::kOnes;
      break;
    case InitRule::Kind::kNormal:
      draw.kind = InitialDraw::Kind::kNormal;
      break;
    case InitRule::Kind::kUniform:
      draw.kind = InitialDraw::Kind::kUniform;
      break;
  }
  return draw;
}

void FillInitial(const InitRule& rule, std::uint64_t seed, std::string_view name,
                 std::int64_t first, std::span<float> out) {
  FillInitialValues(InitialDrawOf(rule, seed, name), first, out);
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

#include "worker/optim/initializer.h"

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

}  // namespace fsdp

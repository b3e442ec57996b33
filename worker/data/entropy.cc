#include "worker/data/entropy.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace fsdp {
namespace {

constexpr std::uint32_t kSmallVocabulary = 1024;

// Calls visit(current, count) for each distinct pair, pairs of one `current` together.
template <typename Visit>
void CountPairs(std::span<const std::uint32_t> tokens, std::uint32_t largest, Visit visit) {
  if (largest < kSmallVocabulary) {
    const std::size_t width = largest + 1;
    std::vector<std::int64_t> counts(width * width);
    for (std::size_t i = 1; i < tokens.size(); ++i) ++counts[tokens[i - 1] * width + tokens[i]];
    for (std::size_t pair = 0; pair < counts.size(); ++pair) {
      if (counts[pair] > 0) visit(static_cast<std::uint32_t>(pair / width), counts[pair]);
    }
    return;
  }
  std::vector<std::uint64_t> pairs;
  pairs.reserve(tokens.size());
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    pairs.push_back((static_cast<std::uint64_t>(tokens[i - 1]) << 32) | tokens[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  for (std::size_t begin = 0; begin < pairs.size();) {
    std::size_t end = begin;
    while (end < pairs.size() && pairs[end] == pairs[begin]) ++end;
    visit(static_cast<std::uint32_t>(pairs[begin] >> 32), static_cast<std::int64_t>(end - begin));
    begin = end;
  }
}

// c ln c, 0 for 0.
double CLogC(std::int64_t count) {
  const auto c = static_cast<double>(count);
  return count > 0 ? c * std::log(c) : 0;
}

}  // namespace

EntropyStats ComputeEntropy(std::span<const std::uint32_t> tokens) {
  EntropyStats stats;
  stats.num_tokens = static_cast<std::int64_t>(tokens.size());
  if (tokens.empty()) return stats;
  const std::uint32_t largest = *std::max_element(tokens.begin(), tokens.end());
  std::unordered_map<std::uint32_t, std::int64_t> followers;  // c'(a)
  std::unordered_map<std::uint32_t, std::int64_t> singles;    // c(a)
  double pair_sum = 0;                                        // sum c(a,b) ln c(a,b)
  CountPairs(tokens, largest, [&](std::uint32_t current, std::int64_t count) {
    followers[current] += count;
    pair_sum += CLogC(count);
  });
  singles = followers;
  ++singles[tokens.back()];  // the last token starts no pair
  double single_sum = 0;
  for (const auto& [token, count] : singles) single_sum += CLogC(count);
  const auto n = static_cast<double>(tokens.size());
  stats.unigram = std::log(n) - single_sum / n;
  if (tokens.size() > 1) {
    double follower_sum = 0;
    for (const auto& [token, count] : followers) follower_sum += CLogC(count);
    stats.bigram_conditional = (follower_sum - pair_sum) / (n - 1);
  }
  return stats;
}

}  // namespace fsdp

#include "proto/support/suggest.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fsdp {

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1,
                                             std::vector<std::size_t>(b.size() + 1, 0));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string Suggest(const std::string& typed, const std::vector<std::string>& candidates) {
  // Far longer than any name: no typing slip.
  if (typed.empty() || typed.size() > 64) return "";
  std::string completion;
  int num_completions = 0;
  for (const auto& candidate : candidates) {
    if (typed.size() < 3 || !absl::StartsWith(candidate, typed)) continue;
    completion = candidate;
    ++num_completions;
  }
  if (num_completions == 1) return completion;
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = EditDistance(typed, candidate);
    if (distance >= best_distance || distance >= candidate.size()) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates,
                       const std::string& prefix) {
  const std::string suggestion = Suggest(typed, candidates);
  return suggestion.empty() ? "" : absl::StrCat("; did you mean ", prefix, suggestion, "?");
}

}  // namespace fsdp

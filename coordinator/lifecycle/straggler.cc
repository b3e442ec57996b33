#include "coordinator/lifecycle/straggler.h"

#include <algorithm>
#include <numeric>

namespace fsdp::coordinator {
namespace {

// The mean without the largest: a median would not see a rank that pauses now and then, and a mean
// would blame one for a single bad step.
double MeanButLargest(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() == 1) return sum;
  const double largest = *std::max_element(values.begin(), values.end());
  return (sum - largest) / static_cast<double>(values.size() - 1);
}

// 0: none took any time.
double Fastest(const std::vector<double>& own) {
  double fastest = 0;
  for (const double seconds : own) {
    if (seconds > 0 && (fastest == 0 || seconds < fastest)) fastest = seconds;
  }
  return fastest;
}

}  // namespace

void StragglerScores::Reset(int world_size) {
  ranks_.assign(static_cast<std::size_t>(world_size), Rank());
}

void StragglerScores::Add(int rank, const v1::StepMetrics& metrics) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) return;
  const v1::StepPhases& phases = metrics.phases();
  const double waits = phases.exposed_gather_seconds() + phases.exposed_scatter_seconds();
  // Evaluations and checkpoints hold collectives too: who waits there is not told apart.
  const double own =
      metrics.step_seconds() - waits - phases.checkpoint_seconds() - phases.evaluate_seconds();
  Rank& entry = ranks_[static_cast<std::size_t>(rank)];
  if (entry.own.size() < kWindow) {
    entry.own.push_back(std::max(0.0, own));
    entry.waits.push_back(waits);
    return;
  }
  entry.own[entry.next] = std::max(0.0, own);
  entry.waits[entry.next] = waits;
  entry.next = (entry.next + 1) % kWindow;
}

std::vector<double> StragglerScores::OwnMeans() const {
  std::vector<double> own;
  for (const Rank& rank : ranks_) {
    // Until all have a step there is nothing to compare with.
    if (rank.own.empty()) return {};
    own.push_back(MeanButLargest(rank.own));
  }
  return own;
}

void StragglerScores::Fill(google::protobuf::RepeatedPtrField<v1::RankStatus>* ranks) const {
  if (ranks_.size() < 2 || ranks->size() != static_cast<int>(ranks_.size())) return;
  const std::vector<double> own = OwnMeans();
  if (own.empty()) return;
  const double fastest = Fastest(own);
  double longest_wait = 0;
  std::vector<double> waits;
  for (const Rank& rank : ranks_) {
    waits.push_back(MeanButLargest(rank.waits));
    longest_wait = std::max(longest_wait, waits.back());
  }
  for (int i = 0; i < ranks->size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    v1::RankStatus& status = *ranks->Mutable(i);
    status.set_straggler_score(own[at] > 0 ? fastest / own[at] : 0);
    // Who comes last waits least.
    status.set_collective_skew_seconds(longest_wait - waits[at]);
  }
}

std::optional<Straggler> StragglerScores::Slowest() const {
  const bool full = std::all_of(ranks_.begin(), ranks_.end(),
                                [](const Rank& rank) { return rank.own.size() == kWindow; });
  if (ranks_.size() < 2 || !full) return std::nullopt;
  const std::vector<double> own = OwnMeans();
  const double fastest = Fastest(own);
  const auto slowest = std::max_element(own.begin(), own.end());
  if (fastest <= 0) return std::nullopt;
  return Straggler{.rank = static_cast<int>(slowest - own.begin()),
                   .score = fastest / *slowest,
                   .loss = absl::Seconds(*slowest - fastest)};
}

}  // namespace fsdp::coordinator

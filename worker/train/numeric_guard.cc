#include "worker/train/numeric_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/train/trainer_report.h"

namespace fsdp {
namespace {

constexpr int kDefaultMaxConsecutiveSkips = 10;
constexpr int kDefaultMaxRollbacks = 3;
// Of the mean: figures that hardly move are no reason to call the next one a spike.
constexpr double kLeastDeviation = 1e-3;

void Add(double value, std::int64_t num_updates, RunningFigure* figure) {
  const auto weight = static_cast<double>(std::min(num_updates, kSpikeMemoryUpdates));
  const double difference = value - figure->mean;
  figure->mean += difference / weight;
  figure->variance = (1 - 1 / weight) * (figure->variance + difference * difference / weight);
}

double Bound(const RunningFigure& figure, double sigma) {
  return figure.mean +
         sigma * std::max(std::sqrt(figure.variance), kLeastDeviation * std::abs(figure.mean));
}

}  // namespace

void NumericGuard::RollBackTo(NumericState state) {
  state.rollbacks = state_.rollbacks + 1;
  state_ = state;
}

StepBounds NumericGuard::bounds() const {
  if (spec_.spike_sigma() <= 0 || state_.num_updates < kSpikeWarmupUpdates) return {};
  return {Bound(state_.loss, spec_.spike_sigma()), Bound(state_.grad_norm, spec_.spike_sigma())};
}

bool NumericGuard::may_roll_back() const {
  return spec_.on_non_finite() == v1::NON_FINITE_POLICY_ROLLBACK ||
         (spec_.spike_sigma() > 0 && spec_.on_spike() == v1::NON_FINITE_POLICY_ROLLBACK);
}

NumericGuard::Verdict NumericGuard::Judge(const StepResult& result) {
  if (!result.skipped && !result.non_finite) {
    state_.consecutive_skips = 0;
    if (spec_.spike_sigma() > 0) {
      ++state_.num_updates;
      Add(result.loss, state_.num_updates, &state_.loss);
      Add(result.grad_norm, state_.num_updates, &state_.grad_norm);
    }
    return {};
  }
  if (!result.non_finite && !result.spike) {
    return {Action::kGoOn, "EMPTY_STEP",
            absl::StrFormat("step %d has no valid target: no update", result.step)};
  }
  std::string message = Describe(result);
  switch (result.non_finite ? spec_.on_non_finite() : spec_.on_spike()) {
    case v1::NON_FINITE_POLICY_SKIP:
      return Skip(result.non_finite ? "NON_FINITE_SKIPPED" : "SPIKE_SKIPPED", std::move(message));
    case v1::NON_FINITE_POLICY_ROLLBACK:
      return RollBack(std::move(message));
    default:
      return {Action::kStop, "",
              absl::StrCat(message, ": lower optimizer.lr, set optimizer.gradClip, or ",
                           result.non_finite ? "train.onNonFinite" : "train.onSpike",
                           ": skip or rollback")};
  }
}

std::string NumericGuard::Describe(const StepResult& result) const {
  const std::string figures = absl::StrFormat("loss %s, gradient norm %s", FormatLoss(result.loss),
                                              FormatLoss(result.grad_norm));
  if (result.non_finite) {
    return absl::StrFormat(
        "step %d: the loss or a gradient holds NaN or Inf (%s); the update was not applied",
        result.step, figures);
  }
  const StepBounds most = bounds();
  return absl::StrFormat(
      "step %d is a spike (%s; with train.spikeSigma %g at most %s and %s); the update was not "
      "applied",
      result.step, figures, spec_.spike_sigma(), FormatLoss(most.loss), FormatLoss(most.grad_norm));
}

NumericGuard::Verdict NumericGuard::Skip(const char* type, std::string message) {
  const int most = spec_.has_max_consecutive_skips() ? spec_.max_consecutive_skips()
                                                     : kDefaultMaxConsecutiveSkips;
  if (++state_.consecutive_skips <= most) return {Action::kGoOn, type, std::move(message)};
  return {Action::kStop, "",
          absl::StrFormat("%s, and train.maxConsecutiveSkips (%d) is used up: lower "
                          "optimizer.lr, or start from an earlier checkpoint",
                          message, most)};
}

NumericGuard::Verdict NumericGuard::RollBack(std::string message) const {
  const int most = spec_.has_max_rollbacks() ? spec_.max_rollbacks() : kDefaultMaxRollbacks;
  if (state_.rollbacks < most) return {Action::kRollBack, "ROLLED_BACK", std::move(message)};
  return {Action::kStop, "",
          absl::StrFormat("%s, and train.maxRollbacks (%d) is used up: lower optimizer.lr, or "
                          "start from an earlier checkpoint",
                          message, most)};
}

}  // namespace fsdp

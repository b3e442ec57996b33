#ifndef FSDPCTL_WORKER_TRAIN_NUMERIC_GUARD_H_
#define FSDPCTL_WORKER_TRAIN_NUMERIC_GUARD_H_

// What becomes of a step whose figures are not finite or jump: train.onNonFinite and train.onSpike.
// Pure: the figures are reduced over all ranks, so all ranks decide alike without asking.
// docs/numeric_policy.md has the formula.

#include <string>

#include "fsdp/v1/job.pb.h"
#include "worker/checkpoint/manifest.h"
#include "worker/device/ops.h"
#include "worker/train/engine.h"

namespace fsdp {

// Updates before the running figures are trusted, and over how many they reach back.
inline constexpr std::int64_t kSpikeWarmupUpdates = 20;
inline constexpr std::int64_t kSpikeMemoryUpdates = 50;

class NumericGuard {
 public:
  enum class Action { kGoOn, kRollBack, kStop };
  struct Verdict {
    Action action = Action::kGoOn;
    // Of the notice to give, UPPER_SNAKE; empty: nothing happened.
    std::string type;
    std::string message;
  };

  explicit NumericGuard(const v1::TrainSpec& spec) : spec_(spec) {}

  // Goes on from a checkpoint's state.
  void Resume(const NumericState& state) { state_ = state; }
  // The same after a rollback, which is not forgotten.
  void RollBackTo(NumericState state);

  // For the next step.
  [[nodiscard]] StepBounds bounds() const;
  // Takes the step into account; its update was left out where its result says so.
  Verdict Judge(const StepResult& result);

  // Whether a step may send the job back to a checkpoint.
  [[nodiscard]] bool may_roll_back() const;
  [[nodiscard]] const NumericState& state() const { return state_; }

 private:
  [[nodiscard]] std::string Describe(const StepResult& result) const;
  Verdict Skip(const char* type, std::string message);
  Verdict RollBack(std::string message) const;

  const v1::TrainSpec spec_;
  NumericState state_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_NUMERIC_GUARD_H_

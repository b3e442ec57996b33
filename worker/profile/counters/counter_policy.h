#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_POLICY_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_POLICY_H_

// When counters are sampled: the decision, without the doing.
//
// Pure. Thread rule: one thread at a time.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"

namespace fsdp {

enum class CounterState : std::uint8_t {
  kIdle,         // between windows
  kSampling,     // in a window
  kBusy,         // another tool has the counters: asked again later
  kDenied,       // for good
  kUnavailable,  // for good
  kAnalytic,     // the device has none
};

// "idle", "sampling", ...: the label of fsdp_profiler_state.
const char* NameOf(CounterState state);

// What became of the wish for a window that lasts until it is released.
enum class HoldState : std::uint8_t {
  kNone,
  kPending,   // wanted
  kOpen,      // the window is open
  kReleased,  // to be ended
  kRefused,   // the policy's message says why
};

struct CounterWindowOptions {
  // No window but those that are held.
  bool only_held = false;
  // A window ends after so many steps or so long, whichever is first.
  int max_steps = 5;
  absl::Duration max_duration = absl::Milliseconds(500);
  // From a window's begin to the next one's. Zero: back to back, which is for measuring what
  // windows cost.
  absl::Duration period = absl::Minutes(1);
  // Steps before the first window: plans are made and graphs captured then.
  int first_step = 3;
  // After a refusal, doubled with each one up to the maximum.
  absl::Duration retry_initial = absl::Seconds(10);
  absl::Duration retry_max = absl::Minutes(5);
  // So many unexplained failures in a row, and there are no more windows.
  int max_failures = 5;
};

class CounterPolicy {
 public:
  enum class Action : std::uint8_t { kWait, kBegin, kEnd };
  struct Decision {
    Action action = Action::kWait;
    // kWait: look again then, or after a step. InfiniteDuration: only after a step, or never.
    absl::Duration wait = absl::InfiniteDuration();
  };

  CounterPolicy(const CounterWindowOptions& options, bool has_driver);

  // `steps`: that the trainer has finished.
  [[nodiscard]] Decision Next(MonotonicTime now, std::int64_t steps) const;
  // The next window is wanted now, not when it is due. What another tool holds is waited for as
  // ever.
  void Request() { requested_ = true; }
  // The next window begins now, in place of one that is open, and lasts until Release. One at a
  // time.
  void Hold();
  // Before it has begun, the window ends as any other.
  void Release();
  [[nodiscard]] HoldState hold() const { return hold_; }

  // Whether the end of a step may change what Next says; otherwise only time does.
  [[nodiscard]] bool WatchesSteps(std::int64_t steps) const {
    return state_ == CounterState::kSampling || steps < options_.first_step;
  }

  // What came of a kBegin or kEnd.
  void OnBegun(const absl::Status& status, MonotonicTime now, std::int64_t steps);
  void OnEnded(const absl::Status& status, MonotonicTime now);

  [[nodiscard]] CounterState state() const { return state_; }
  // What to do about a state that is neither sampling nor idle; empty there.
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  void Refuse(const absl::Status& status, MonotonicTime now);

  const CounterWindowOptions options_;
  CounterState state_;
  std::string message_;
  MonotonicTime next_begin_;
  bool requested_ = false;
  HoldState hold_ = HoldState::kNone;
  MonotonicTime window_begin_;
  std::int64_t window_first_step_ = 0;
  absl::Duration retry_;
  int num_failures_ = 0;  // in a row, unexplained ones
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_POLICY_H_

#include "worker/profile/counters/counter_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fsdp {

const char* NameOf(CounterState state) {
  switch (state) {
    case CounterState::kIdle:
      return "idle";
    case CounterState::kSampling:
      return "sampling";
    case CounterState::kBusy:
      return "busy";
    case CounterState::kDenied:
      return "denied";
    case CounterState::kUnavailable:
      return "unavailable";
    case CounterState::kAnalytic:
      return "analytic";
  }
  return "unavailable";
}

CounterPolicy::CounterPolicy(const CounterWindowOptions& options, bool has_driver)
    : options_(options),
      state_(has_driver ? CounterState::kIdle : CounterState::kAnalytic),
      message_(has_driver ? ""
                          : "this device has no hardware counters; verdicts come from counted "
                            "work and measured time"),
      retry_(options.retry_initial) {}

CounterPolicy::Decision CounterPolicy::Next(MonotonicTime now, std::int64_t steps) const {
  if (state_ == CounterState::kSampling) {
    if (hold_ == HoldState::kOpen) return {};
    if (hold_ != HoldState::kNone) return {Action::kEnd};
    const absl::Duration left = window_begin_ + options_.max_duration - now;
    const bool over = steps - window_first_step_ >= options_.max_steps;
    if (over || left <= absl::ZeroDuration()) return {Action::kEnd};
    return {Action::kWait, left};
  }
  if (state_ != CounterState::kIdle && state_ != CounterState::kBusy) return {};
  if (hold_ == HoldState::kPending) return {Action::kBegin};
  if (options_.only_held) return {};
  if (steps < options_.first_step) return {};
  if (requested_ && state_ == CounterState::kIdle) return {Action::kBegin};
  const absl::Duration left = next_begin_ - now;
  if (left <= absl::ZeroDuration()) return {Action::kBegin};
  return {Action::kWait, left};
}

void CounterPolicy::Hold() {
  const bool can = state_ != CounterState::kDenied && state_ != CounterState::kUnavailable &&
                   state_ != CounterState::kAnalytic;
  hold_ = can ? HoldState::kPending : HoldState::kRefused;
}

void CounterPolicy::Release() {
  hold_ = hold_ == HoldState::kOpen ? HoldState::kReleased : HoldState::kNone;
}

void CounterPolicy::OnBegun(const absl::Status& status, MonotonicTime now, std::int64_t steps) {
  requested_ = false;
  if (hold_ == HoldState::kPending) hold_ = status.ok() ? HoldState::kOpen : HoldState::kRefused;
  if (!status.ok()) return Refuse(status, now);
  state_ = CounterState::kSampling;
  message_.clear();
  window_begin_ = now;
  window_first_step_ = steps;
  next_begin_ = now + options_.period;
}

void CounterPolicy::OnEnded(const absl::Status& status, MonotonicTime now) {
  if (hold_ == HoldState::kReleased) hold_ = HoldState::kNone;
  if (!status.ok()) return Refuse(status, now);
  state_ = CounterState::kIdle;
  retry_ = options_.retry_initial;
  num_failures_ = 0;
}

void CounterPolicy::Refuse(const absl::Status& status, MonotonicTime now) {
  message_ = std::string(status.message());
  state_ = CounterState::kBusy;
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
      state_ = CounterState::kDenied;
      return;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      state_ = CounterState::kUnavailable;
      return;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      num_failures_ = 0;
      break;
    default:
      if (++num_failures_ >= options_.max_failures) {
        state_ = CounterState::kUnavailable;
        message_ = absl::StrCat("given up after ", num_failures_, " failures: ", message_);
        return;
      }
  }
  next_begin_ = now + retry_;
  retry_ = std::min(2 * retry_, options_.retry_max);
}

}  // namespace fsdp

#ifndef FSDPCTL_PROTO_SUPPORT_CLOCK_H_
#define FSDPCTL_PROTO_SUPPORT_CLOCK_H_

// Time is an argument. Decisions use MonotonicTime (never jumps); absl::Time is for people and
// records.

#include <compare>

#include "absl/time/time.h"

namespace fsdp {

// An instant of the process's monotonic clock. Differences are absl::Duration.
class MonotonicTime {
 public:
  MonotonicTime() = default;
  static MonotonicTime FromSinceStart(absl::Duration since_start) {
    MonotonicTime time;
    time.since_start_ = since_start;
    return time;
  }
  [[nodiscard]] absl::Duration since_start() const { return since_start_; }

  friend absl::Duration operator-(MonotonicTime a, MonotonicTime b) {
    return a.since_start_ - b.since_start_;
  }
  friend MonotonicTime operator+(MonotonicTime a, absl::Duration d) {
    return FromSinceStart(a.since_start_ + d);
  }
  friend MonotonicTime operator-(MonotonicTime a, absl::Duration d) {
    return FromSinceStart(a.since_start_ - d);
  }
  friend bool operator==(MonotonicTime a, MonotonicTime b) {
    return a.since_start_ == b.since_start_;
  }
  friend bool operator<(MonotonicTime a, MonotonicTime b) {
    return a.since_start_ < b.since_start_;
  }
  friend bool operator>(MonotonicTime a, MonotonicTime b) { return b < a; }
  friend bool operator<=(MonotonicTime a, MonotonicTime b) { return !(b < a); }
  friend bool operator>=(MonotonicTime a, MonotonicTime b) { return !(a < b); }

 private:
  absl::Duration since_start_ = absl::ZeroDuration();
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual MonotonicTime Now() const = 0;
  [[nodiscard]] virtual absl::Time WallNow() const = 0;

  // CLOCK_MONOTONIC and the system's wall clock; never destroyed.
  static Clock& Real();
};

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_CLOCK_H_

#ifndef FSDPCTL_TESTS_FAKES_FAKE_CLOCK_H_
#define FSDPCTL_TESTS_FAKES_FAKE_CLOCK_H_

#include "proto/support/clock.h"

namespace fsdp {

// Moves when told. Not thread-safe.
class FakeClock : public Clock {
 public:
  [[nodiscard]] MonotonicTime Now() const override { return now_; }
  [[nodiscard]] absl::Time WallNow() const override {
    return absl::FromUnixSeconds(1'700'000'000) + now_.since_start();
  }
  void Advance(absl::Duration by) { now_ = now_ + by; }

 private:
  MonotonicTime now_ = MonotonicTime::FromSinceStart(absl::Seconds(100));
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_FAKES_FAKE_CLOCK_H_

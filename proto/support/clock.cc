#include "proto/support/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace fsdp {
namespace {

class RealClock final : public Clock {
 public:
  [[nodiscard]] MonotonicTime Now() const override {
    return MonotonicTime::FromSinceStart(
        absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
  }
  [[nodiscard]] absl::Time WallNow() const override { return absl::Now(); }
};

}  // namespace

Clock& Clock::Real() {
  static auto* const clock = new RealClock;
  return *clock;
}

}  // namespace fsdp

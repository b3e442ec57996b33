#ifndef FSDPCTL_COORDINATOR_SECURITY_DENIAL_LINES_H_
#define FSDPCTL_COORDINATOR_SECURITY_DENIAL_LINES_H_

// How many lines callers that are not known, or that send too much, may cause: without a bound they
// would fill the disk.
//
// Thread-safe.

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "coordinator/security/call_limiter.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

class DenialLines {
 public:
  // `clock` outlives it.
  explicit DenialLines(const Clock& clock) : clock_(clock), bucket_(kBurst, clock.Now()) {}

  // A line may be written: how many were left out before it. Absent: this one is left out.
  std::optional<std::int64_t> Take() {
    const std::lock_guard lock(mutex_);
    if (bucket_.Take(kPerSecond, kBurst, clock_.Now())) {
      ++suppressed_;
      return std::nullopt;
    }
    return std::exchange(suppressed_, 0);
  }

  static constexpr double kPerSecond = 5;
  static constexpr double kBurst = 50;

 private:
  const Clock& clock_;
  std::mutex mutex_;
  TokenBucket bucket_;
  std::int64_t suppressed_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_DENIAL_LINES_H_

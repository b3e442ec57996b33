#ifndef FSDPCTL_COORDINATOR_SECURITY_CALL_LIMITER_H_
#define FSDPCTL_COORDINATOR_SECURITY_CALL_LIMITER_H_

// How much one caller may ask for. A caller is a subject, or the host of one that nobody asked.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

struct LimitOptions {
  // Of one subject, where there are any; 0: any number. Workers' streams are not counted.
  double requests_per_second = 500;
  // That come at once after a pause.
  double burst = 1000;
  // Open at a time, of one caller; a worker's counts until its hello. 0: any number.
  std::int64_t streams = 1024;
  // Of a job spec in a request, on the wire.
  std::int64_t spec_bytes = std::int64_t{1} << 20;
  // A worker that has opened its stream must say hello within this.
  absl::Duration hello_timeout = absl::Seconds(10);
};

// Fills up by `rate` a second to `burst`; each request takes one out. Pure: a value.
class TokenBucket {
 public:
  TokenBucket(double burst, MonotonicTime now) : tokens_(burst), time_(now) {}
  // Absent: taken. Else nothing was taken, and one will be there after this long.
  std::optional<absl::Duration> Take(double rate, double burst, MonotonicTime now);
  [[nodiscard]] bool Full(double rate, double burst, MonotonicTime now) const;

 private:
  double tokens_;
  MonotonicTime time_;
};

// Thread-safe.
class CallLimiter {
 public:
  CallLimiter(const LimitOptions& options, const Clock& clock) : options_(options), clock_(clock) {}

  //   RESOURCE_EXHAUSTED  RATE_LIMITED, with a RetryInfo
  absl::Status Request(const std::string& caller);
  //   RESOURCE_EXHAUSTED  STREAM_LIMIT; CloseStream gives the place back
  absl::Status OpenStream(const std::string& caller);
  void CloseStream(const std::string& caller);
  //   RESOURCE_EXHAUSTED  SPEC_TOO_LARGE
  [[nodiscard]] absl::Status CheckSpecBytes(std::int64_t bytes) const;

  // Callers that are remembered, for tests.
  [[nodiscard]] std::size_t num_callers() const;

 private:
  struct Caller {
    TokenBucket bucket;
    std::int64_t streams = 0;
  };
  Caller& FindLocked(const std::string& caller, MonotonicTime now);

  const LimitOptions options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Caller> callers_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_CALL_LIMITER_H_

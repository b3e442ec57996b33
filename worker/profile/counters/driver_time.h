#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_DRIVER_TIME_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_DRIVER_TIME_H_

// CUPTI's times are of CLOCK_REALTIME unless it is given another clock, and its documentation does
// not say for which of its times another clock holds. The two clocks are decades apart, so a time
// tells itself which one it is of.
//
// Pure; thread-safe.

#include <cstdint>

namespace fsdp {

// The two clocks at one moment.
struct ClockPair {
  std::int64_t monotonic_ns = 0;
  std::int64_t realtime_ns = 0;
};

// `time_ns` of either clock, near `now`, as time of the monotonic one.
constexpr std::int64_t MonotonicFrom(std::int64_t time_ns, const ClockPair& now) {
  const std::int64_t offset_ns = now.realtime_ns - now.monotonic_ns;
  return time_ns - now.monotonic_ns > offset_ns / 2 ? time_ns - offset_ns : time_ns;
}

// Read now.
ClockPair ReadClocks();

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_DRIVER_TIME_H_

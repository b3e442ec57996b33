#include "worker/profile/counters/driver_time.h"

#include <ctime>

namespace fsdp {
namespace {

std::int64_t Read(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

ClockPair ReadClocks() {
  // The second clock is read between two readings of the first.
  const std::int64_t before_ns = Read(CLOCK_MONOTONIC);
  const std::int64_t realtime_ns = Read(CLOCK_REALTIME);
  const std::int64_t after_ns = Read(CLOCK_MONOTONIC);
  return {before_ns + (after_ns - before_ns) / 2, realtime_ns};
}

}  // namespace fsdp

#include "worker/profile/counters/driver_time.h"

#include "gtest/gtest.h"

namespace fsdp {
namespace {

constexpr std::int64_t kHour = 3'600'000'000'000;

TEST(DriverTimeTest, TellsTheClocksApart) {
  // A day of uptime, in 2026.
  const ClockPair now{24 * kHour, 1'780'000'000'000'000'000};
  EXPECT_EQ(MonotonicFrom(now.monotonic_ns, now), now.monotonic_ns);
  EXPECT_EQ(MonotonicFrom(now.realtime_ns, now), now.monotonic_ns);
  EXPECT_EQ(MonotonicFrom(now.realtime_ns - kHour, now), now.monotonic_ns - kHour);
  EXPECT_EQ(MonotonicFrom(now.monotonic_ns - kHour, now), now.monotonic_ns - kHour);
  EXPECT_EQ(MonotonicFrom(now.monotonic_ns + kHour, now), now.monotonic_ns + kHour);
  // The first sample of a run may begin anywhere before.
  EXPECT_EQ(MonotonicFrom(0, now), 0);
}

TEST(DriverTimeTest, BothClocksMove) {
  const ClockPair first = ReadClocks();
  const ClockPair second = ReadClocks();
  EXPECT_GE(second.monotonic_ns, first.monotonic_ns);
  EXPECT_GT(first.realtime_ns, first.monotonic_ns);
}

}  // namespace
}  // namespace fsdp

#include "worker/profile/counters/counter_windows.h"

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/fake_clock.h"

namespace fsdp {
namespace {

// What a driver was asked and what it answers; outlives the windows.
struct Script {
  std::vector<absl::Status> begins;  // then OK
  std::vector<absl::Status> ends;
  std::size_t num_begins = 0;
  std::size_t num_ends = 0;
  bool sampling = false;
  CounterDriver::Pace pace = CounterDriver::Pace::kShort;
  std::atomic<int> num_windows{0};
};

class FakeDriver : public CounterDriver {
 public:
  explicit FakeDriver(Script& script) : script_(script) {}
  ~FakeDriver() override { script_.sampling = false; }

  absl::Status Begin(Pace pace) override {
    EXPECT_FALSE(script_.sampling);
    script_.pace = pace;
    const std::size_t call = script_.num_begins++;
    absl::Status status = call < script_.begins.size() ? script_.begins[call] : absl::OkStatus();
    script_.sampling = status.ok();
    return status;
  }

  absl::StatusOr<CounterReading> End() override {
    EXPECT_TRUE(script_.sampling);
    script_.sampling = false;
    ++script_.num_windows;
    const std::size_t call = script_.num_ends++;
    if (call < script_.ends.size() && !script_.ends[call].ok()) return script_.ends[call];
    CounterReading reading;
    reading.samples.resize(10);
    reading.dropped["overflow"] = 2;
    reading.overhead_seconds = {{"enable", 0.25}, {"decode", 0.5}};
    return reading;
  }

 private:
  Script& script_;
};

class CounterWindowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    windows_ = std::make_unique<CounterWindows>(
        CounterWindowOptions(), std::make_unique<FakeDriver>(script_),
        [](const CounterReading& reading) {
          CounterWindows::Use use;
          use.samples = static_cast<std::int64_t>(reading.samples.size()) - 1;
          use.dropped["edge"] = 1;
          use.seconds = 0.125;
          return use;
        },
        clock_);
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) windows_->OnStep();
  }
  std::string State() { return windows_->Health().state(); }

  FakeClock clock_;
  Script script_;
  std::unique_ptr<CounterWindows> windows_;
};

TEST_F(CounterWindowsTest, AWindowIsReadAndCounted) {
  EXPECT_EQ(windows_->RunOnce(), absl::InfiniteDuration());
  Steps(3);
  EXPECT_EQ(windows_->RunOnce(), absl::ZeroDuration());
  EXPECT_EQ(State(), "sampling");
  Steps(4);
  EXPECT_EQ(windows_->RunOnce(), absl::Milliseconds(500));
  Steps(1);
  windows_->RunOnce();
  EXPECT_EQ(State(), "idle");
  const v1::ProfilerHealth health = windows_->Health();
  EXPECT_EQ(health.windows(), 1);
  EXPECT_EQ(health.samples(), 9);
  EXPECT_EQ(health.dropped().at("overflow"), 2);
  EXPECT_EQ(health.dropped().at("edge"), 1);
  EXPECT_EQ(health.overhead_seconds().at("enable"), 0.25);
  EXPECT_EQ(health.overhead_seconds().at("decode"), 0.5);
  EXPECT_EQ(health.overhead_seconds().at("evaluate"), 0.125);
  EXPECT_EQ(health.message(), "");
}

TEST_F(CounterWindowsTest, TotalsGrowFromWindowToWindow) {
  Steps(3);
  for (int i = 0; i < 3; ++i) {
    windows_->RunOnce();
    clock_.Advance(absl::Milliseconds(500));
    windows_->RunOnce();
    EXPECT_EQ(windows_->RunOnce(), absl::Seconds(59.5));
    clock_.Advance(absl::Seconds(59.5));
  }
  EXPECT_EQ(windows_->Health().windows(), 3);
  EXPECT_EQ(windows_->Health().samples(), 27);
  EXPECT_EQ(windows_->Health().dropped().at("overflow"), 6);
}

TEST_F(CounterWindowsTest, ABusyDriverIsShownAndAskedAgain) {
  script_.begins = {absl::UnavailableError("another profiler holds the counters")};
  Steps(3);
  windows_->RunOnce();
  EXPECT_EQ(State(), "busy");
  EXPECT_EQ(windows_->Health().message(), "another profiler holds the counters");
  EXPECT_EQ(windows_->RunOnce(), absl::Seconds(10));
  EXPECT_EQ(script_.num_begins, 1U);
  clock_.Advance(absl::Seconds(10));
  windows_->RunOnce();
  EXPECT_EQ(State(), "sampling");
}

TEST_F(CounterWindowsTest, AWindowThatFailsIsNoWindow) {
  script_.ends = {absl::InternalError("decode")};
  Steps(3);
  windows_->RunOnce();
  Steps(5);
  windows_->RunOnce();
  EXPECT_EQ(State(), "busy");
  EXPECT_EQ(windows_->Health().windows(), 0);
}

TEST_F(CounterWindowsTest, ARequestedWindowComesAtOnce) {
  Steps(3);
  windows_->RunOnce();
  Steps(5);
  windows_->RunOnce();
  EXPECT_EQ(windows_->RunOnce(), absl::Minutes(1));
  windows_->Request();
  windows_->RunOnce();
  EXPECT_EQ(State(), "sampling");
}

TEST_F(CounterWindowsTest, AHeldWindowIsItsOwnersAlone) {
  windows_->Hold();
  EXPECT_EQ(windows_->hold(), HoldState::kPending);
  windows_->RunOnce();
  EXPECT_EQ(windows_->hold(), HoldState::kOpen) << "it waits for no first steps";
  EXPECT_EQ(script_.pace, CounterDriver::Pace::kLong);
  Steps(100);
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(windows_->RunOnce(), absl::InfiniteDuration());
  std::future<absl::StatusOr<CounterReading>> reading = windows_->Release();
  windows_->RunOnce();
  const absl::StatusOr<CounterReading> read = reading.get();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->samples.size(), 10U);
  EXPECT_EQ(windows_->hold(), HoldState::kNone);
  EXPECT_EQ(State(), "idle");
  EXPECT_EQ(windows_->Health().windows(), 1);
  EXPECT_EQ(windows_->Health().samples(), 0) << "its reader never saw it";
  EXPECT_EQ(windows_->Health().dropped().at("overflow"), 2);
}

TEST_F(CounterWindowsTest, AHeldWindowTakesThePlaceOfAnOpenOne) {
  Steps(3);
  windows_->RunOnce();
  EXPECT_EQ(State(), "sampling");
  windows_->Hold();
  windows_->RunOnce();
  EXPECT_EQ(script_.pace, CounterDriver::Pace::kShort);
  EXPECT_EQ(windows_->Health().samples(), 9) << "what it had was read";
  windows_->RunOnce();
  EXPECT_EQ(windows_->hold(), HoldState::kOpen);
}

TEST_F(CounterWindowsTest, AHoldThatIsRefusedSaysWhyAndWindowsGoOn) {
  script_.begins = {absl::UnavailableError("another profiler holds the counters")};
  windows_->Hold();
  windows_->RunOnce();
  EXPECT_EQ(windows_->hold(), HoldState::kRefused);
  EXPECT_EQ(windows_->Health().message(), "another profiler holds the counters");
  EXPECT_EQ(windows_->Release().get().status().code(), absl::StatusCode::kFailedPrecondition);
  Steps(3);
  clock_.Advance(absl::Seconds(10));
  windows_->RunOnce();
  EXPECT_EQ(State(), "sampling");
}

TEST_F(CounterWindowsTest, AHeldWindowThatFailsTellsItsOwner) {
  script_.ends = {absl::InternalError("decode")};
  windows_->Hold();
  windows_->RunOnce();
  std::future<absl::StatusOr<CounterReading>> reading = windows_->Release();
  windows_->RunOnce();
  EXPECT_EQ(reading.get().status().message(), "decode");
  EXPECT_EQ(windows_->hold(), HoldState::kNone);
}

TEST_F(CounterWindowsTest, WhatIsReleasedAndNeverEndedIsCancelled) {
  windows_->Hold();
  windows_->RunOnce();
  std::future<absl::StatusOr<CounterReading>> reading = windows_->Release();
  windows_.reset();
  EXPECT_EQ(reading.get().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(CounterWindowsTest, OnlyHeldWindowsWhereNoOthersAreWanted) {
  CounterWindowOptions options;
  options.only_held = true;
  Script script;
  CounterWindows windows(
      options, std::make_unique<FakeDriver>(script),
      [](const CounterReading&) { return CounterWindows::Use(); }, clock_);
  for (int i = 0; i < 10; ++i) windows.OnStep();
  EXPECT_EQ(windows.RunOnce(), absl::InfiniteDuration());
  windows.Hold();
  windows.RunOnce();
  EXPECT_EQ(windows.hold(), HoldState::kOpen);
}

TEST_F(CounterWindowsTest, AnOpenWindowEndsWithItsOwner) {
  Steps(3);
  windows_->RunOnce();
  EXPECT_TRUE(script_.sampling);
  windows_.reset();
  EXPECT_FALSE(script_.sampling);
  EXPECT_EQ(script_.num_ends, 0U);
}

TEST_F(CounterWindowsTest, WithoutADriverAllIsAnalytic) {
  CounterWindows windows({}, nullptr, nullptr, clock_);
  windows.StartThread();
  for (int i = 0; i < 10; ++i) windows.OnStep();
  EXPECT_EQ(windows.RunOnce(), absl::InfiniteDuration());
  windows.Hold();
  EXPECT_EQ(windows.hold(), HoldState::kRefused);
  EXPECT_EQ(windows.Health().state(), "analytic");
  EXPECT_EQ(windows.Health().windows(), 0);
}

// With its thread: steps are reported until ten windows are over. Nothing here waits for the clock,
// which stands still.
TEST_F(CounterWindowsTest, TheThreadFollowsTheSteps) {
  CounterWindowOptions options;
  options.period = absl::ZeroDuration();
  Script script;
  {
    CounterWindows windows(
        options, std::make_unique<FakeDriver>(script),
        [](const CounterReading&) { return CounterWindows::Use(); }, clock_);
    windows.StartThread();
    while (script.num_windows < 10) windows.OnStep();
  }
  EXPECT_FALSE(script.sampling);
  EXPECT_GE(script.num_begins, 10U);
}

}  // namespace
}  // namespace fsdp

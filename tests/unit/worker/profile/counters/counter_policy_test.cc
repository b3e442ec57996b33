#include "worker/profile/counters/counter_policy.h"

#include "gtest/gtest.h"

namespace fsdp {
namespace {

using Action = CounterPolicy::Action;

MonotonicTime At(double seconds) { return MonotonicTime::FromSinceStart(absl::Seconds(seconds)); }

class CounterPolicyTest : public ::testing::Test {
 protected:
  Action ActionAt(double seconds, std::int64_t steps) {
    return policy_.Next(At(seconds), steps).action;
  }
  absl::Duration WaitAt(double seconds, std::int64_t steps) {
    return policy_.Next(At(seconds), steps).wait;
  }
  // A whole window.
  void Window(double begin, std::int64_t steps) {
    policy_.OnBegun(absl::OkStatus(), At(begin), steps);
    policy_.OnEnded(absl::OkStatus(), At(begin + 0.5));
  }

  CounterPolicy policy_{{}, /*has_driver=*/true};
};

TEST_F(CounterPolicyTest, TheFirstWindowWaitsForTheFirstSteps) {
  EXPECT_EQ(WaitAt(100, 0), absl::InfiniteDuration());
  EXPECT_EQ(WaitAt(100, 2), absl::InfiniteDuration());
  EXPECT_TRUE(policy_.WatchesSteps(2));
  EXPECT_EQ(ActionAt(100, 3), Action::kBegin);
  EXPECT_FALSE(policy_.WatchesSteps(3));
}

TEST_F(CounterPolicyTest, AWindowEndsAfterFiveSteps) {
  policy_.OnBegun(absl::OkStatus(), At(100), 10);
  EXPECT_EQ(policy_.state(), CounterState::kSampling);
  EXPECT_TRUE(policy_.WatchesSteps(10));
  EXPECT_EQ(WaitAt(100.1, 14), absl::Milliseconds(400));
  EXPECT_EQ(ActionAt(100.1, 15), Action::kEnd);
}

TEST_F(CounterPolicyTest, OrAfterHalfASecondWhateverTheSteps) {
  policy_.OnBegun(absl::OkStatus(), At(100), 10);
  EXPECT_EQ(ActionAt(100.499, 10), Action::kWait);
  EXPECT_EQ(ActionAt(100.5, 10), Action::kEnd);
}

TEST_F(CounterPolicyTest, OneWindowAMinute) {
  Window(100, 10);
  EXPECT_EQ(policy_.state(), CounterState::kIdle);
  EXPECT_EQ(WaitAt(101, 20), absl::Seconds(59));
  EXPECT_EQ(ActionAt(160, 700), Action::kBegin);
}

TEST_F(CounterPolicyTest, ARequestDoesNotWaitForTheMinute) {
  Window(100, 10);
  policy_.Request();
  EXPECT_EQ(ActionAt(101, 20), Action::kBegin);
  Window(101, 20);
  EXPECT_EQ(WaitAt(102, 30), absl::Seconds(59));
}

TEST_F(CounterPolicyTest, WhatAnotherToolHoldsIsAskedForEverLessOften) {
  const absl::Status busy = absl::UnavailableError("ncu has them");
  policy_.OnBegun(busy, At(100), 10);
  EXPECT_EQ(policy_.state(), CounterState::kBusy);
  EXPECT_EQ(policy_.message(), "ncu has them");
  EXPECT_EQ(WaitAt(100, 20), absl::Seconds(10));
  policy_.OnBegun(busy, At(110), 30);
  EXPECT_EQ(WaitAt(110, 30), absl::Seconds(20));
  // A request does not make the other tool go.
  policy_.Request();
  EXPECT_EQ(WaitAt(110, 30), absl::Seconds(20));
  for (int i = 0; i < 20; ++i) policy_.OnBegun(busy, At(200), 30);
  EXPECT_EQ(WaitAt(200, 30), absl::Minutes(5));
  EXPECT_EQ(policy_.state(), CounterState::kBusy);
  // Once they are free all is as before.
  Window(500, 40);
  EXPECT_EQ(policy_.state(), CounterState::kIdle);
  EXPECT_EQ(policy_.message(), "");
  policy_.OnBegun(busy, At(560), 50);
  EXPECT_EQ(WaitAt(560, 50), absl::Seconds(10));
}

TEST_F(CounterPolicyTest, AToolThatComesInTheMiddleOfAWindowIsYieldedTo) {
  policy_.OnBegun(absl::OkStatus(), At(100), 10);
  policy_.OnEnded(absl::UnavailableError("taken"), At(100.2));
  EXPECT_EQ(policy_.state(), CounterState::kBusy);
  EXPECT_EQ(WaitAt(100.2, 12), absl::Seconds(10));
}

TEST_F(CounterPolicyTest, WhatIsForbiddenIsNotAskedForAgain) {
  policy_.OnBegun(absl::PermissionDeniedError("root only"), At(100), 10);
  EXPECT_EQ(policy_.state(), CounterState::kDenied);
  policy_.Request();
  EXPECT_EQ(WaitAt(1e6, 1000000), absl::InfiniteDuration());
  EXPECT_EQ(policy_.message(), "root only");
}

TEST(CounterPolicyUnavailableTest, WhatTheMachineLacksIsNotAskedForAgain) {
  for (const absl::Status& status :
       {absl::NotFoundError("no library"), absl::FailedPreconditionError("MIG")}) {
    CounterPolicy policy({}, /*has_driver=*/true);
    policy.OnBegun(status, At(100), 10);
    EXPECT_EQ(policy.state(), CounterState::kUnavailable);
    EXPECT_EQ(policy.Next(At(1e6), 1000000).wait, absl::InfiniteDuration());
  }
}

TEST_F(CounterPolicyTest, UnexplainedFailuresEndIt) {
  const absl::Status failure = absl::InternalError("CUPTI_ERROR_UNKNOWN");
  for (int i = 0; i < 4; ++i) {
    policy_.OnBegun(failure, At(100 * i), 10);
    EXPECT_EQ(policy_.state(), CounterState::kBusy);
  }
  policy_.OnBegun(failure, At(1000), 10);
  EXPECT_EQ(policy_.state(), CounterState::kUnavailable);
  EXPECT_EQ(policy_.message(), "given up after 5 failures: CUPTI_ERROR_UNKNOWN");
}

TEST_F(CounterPolicyTest, AWindowInBetweenForgivesFailures) {
  for (int i = 0; i < 20; ++i) {
    policy_.OnBegun(absl::InternalError("odd"), At(100 * i), 10);
    Window(100 * i + 50, 10);
  }
  EXPECT_EQ(policy_.state(), CounterState::kIdle);
}

TEST(CounterPolicyWithoutDriverTest, SaysSoAndDoesNothing) {
  const CounterPolicy policy({}, /*has_driver=*/false);
  EXPECT_EQ(policy.state(), CounterState::kAnalytic);
  EXPECT_EQ(policy.Next(At(1e6), 1000).wait, absl::InfiniteDuration());
  EXPECT_NE(policy.message(), "");
}

TEST(CounterPolicyBackToBackTest, TheNextWindowFollowsAtOnce) {
  CounterWindowOptions options;
  options.period = absl::ZeroDuration();
  CounterPolicy policy(options, true);
  policy.OnBegun(absl::OkStatus(), At(100), 10);
  policy.OnEnded(absl::OkStatus(), At(100.3));
  EXPECT_EQ(policy.Next(At(100.3), 15).action, Action::kBegin);
}

}  // namespace
}  // namespace fsdp

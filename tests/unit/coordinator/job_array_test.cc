// What tasks make of their array.

#include "coordinator/queue/job_array.h"

#include "coordinator/lifecycle/job_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kQueued = v1::JOB_STATE_QUEUED;
constexpr auto kStarting = v1::JOB_STATE_STARTING;
constexpr auto kRunning = v1::JOB_STATE_RUNNING;
constexpr auto kRecovering = v1::JOB_STATE_RECOVERING;
constexpr auto kSuspended = v1::JOB_STATE_SUSPENDED;
constexpr auto kCancelling = v1::JOB_STATE_CANCELLING;
constexpr auto kSucceeded = v1::JOB_STATE_SUCCEEDED;
constexpr auto kFailed = v1::JOB_STATE_FAILED;
constexpr auto kCancelled = v1::JOB_STATE_CANCELLED;

v1::JobState StateOf(const std::vector<v1::JobState>& tasks, v1::JobState before) {
  return SummarizeArray(v1::ArraySpec(), tasks, before).state;
}

TEST(JobArrayTest, StatesFollowTheTasks) {
  EXPECT_EQ(StateOf({kQueued, kQueued}, kQueued), kQueued);
  EXPECT_EQ(StateOf({kQueued, kStarting}, kQueued), kRunning);
  EXPECT_EQ(StateOf({kSucceeded, kRecovering}, kRunning), kRunning);
  // Between two tasks nothing runs; it has been started all the same.
  EXPECT_EQ(StateOf({kSucceeded, kQueued}, kRunning), kRunning);
  EXPECT_EQ(StateOf({kSucceeded, kSucceeded}, kRunning), kSucceeded);
  EXPECT_EQ(StateOf({kSucceeded, kFailed, kQueued}, kRunning), kRunning);
  EXPECT_EQ(StateOf({kSucceeded, kFailed, kCancelled}, kRunning), kFailed);
  EXPECT_EQ(StateOf({kSucceeded, kCancelled}, kRunning), kCancelled);
  EXPECT_EQ(StateOf({kSuspended, kSucceeded}, kRunning), kSuspended);
  EXPECT_EQ(StateOf({kQueued, kSucceeded}, kSuspended), kQueued);
  EXPECT_EQ(StateOf({kCancelling, kCancelled}, kRunning), kCancelling);
  // A task that fails while all are being cancelled was being cancelled.
  EXPECT_EQ(StateOf({kFailed, kCancelled}, kCancelling), kCancelled);
  EXPECT_EQ(StateOf({kQueued, kSucceeded}, kFailed), kQueued);
}

TEST(JobArrayTest, CountsAndSaysThem) {
  v1::ArraySpec array;
  array.set_max_parallel(2);
  const ArraySummary summary = SummarizeArray(
      array, {kRunning, kStarting, kQueued, kSucceeded, kFailed, kCancelled, kSuspended}, kRunning);
  EXPECT_EQ(summary.status.active(), 2);
  EXPECT_EQ(summary.status.waiting(), 1);
  EXPECT_EQ(summary.reason,
            "2 of 7 tasks run (at most 2 at a time), 1 waits, 1 is suspended, 1 succeeded, 1 "
            "failed, 1 was cancelled");
}

// The array's own record only changes by legal transitions, whatever its tasks do.
TEST(JobArrayTest, EveryStateIsReachedByLegalTransitions) {
  EXPECT_THAT(StatesBetween(kQueued, kRunning), ElementsAre(kStarting, kRunning));
  EXPECT_THAT(StatesBetween(kRunning, kCancelled), ElementsAre(kCancelling, kCancelled));
  EXPECT_THAT(StatesBetween(kRunning, kRunning), IsEmpty());
  for (const v1::JobState from :
       {kQueued, kRunning, kSuspended, kCancelling, kFailed, kCancelled}) {
    for (const v1::JobState to :
         {kQueued, kRunning, kSuspended, kCancelling, kSucceeded, kFailed, kCancelled}) {
      const bool asked = from != to && !(from == kCancelling && to != kCancelled) &&
                         !(from == kRunning && to == kQueued);
      if (!asked) continue;
      const std::vector<v1::JobState> path = StatesBetween(from, to);
      ASSERT_FALSE(path.empty()) << StateName(from) << " to " << StateName(to);
      EXPECT_EQ(path.back(), to);
      v1::JobState before = from;
      for (const v1::JobState state : path) {
        EXPECT_TRUE(IsLegalTransition(before, state)) << StateName(before) << StateName(state);
        before = state;
      }
    }
  }
}

TEST(JobArrayTest, TheGateLetsThroughAsManyAsMayHoldDevices) {
  ArrayGate gate;
  gate.AddActive("jobs/a");
  EXPECT_EQ(gate.Ask("jobs/a", 2), "");
  EXPECT_EQ(gate.Ask("jobs/a", 2),
            "its array jobs/a has 2 tasks on devices or next, of at most 2 (array.maxParallel)");
  EXPECT_EQ(gate.Ask("jobs/b", 2), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gate.Ask("jobs/c", 0), "");
}

}  // namespace
}  // namespace fsdp::coordinator

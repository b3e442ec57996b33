// One job's life with time as an argument: deadlines and what follows an epoch.

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

// `auto` recomputes what a device asks for; ranks that planned for their own would plan apart.
TEST_F(JobControllerTest, EveryRankPlansForTheSmallestDevice) {
  std::vector<records::MemberRecord> members(2);
  members[0].set_device_memory_bytes(80);
  members[1].set_rank(1);
  members[1].set_device_memory_bytes(40);
  Do([&](JobController& controller) { controller.Place(members); });
  ASSERT_EQ(effects_.when_durable.size(), 2u);
  for (const Outgoing& out : effects_.when_durable) {
    EXPECT_EQ(out.message.start_rank().device_memory_bytes(), 40);
  }
}

TEST_F(JobControllerTest, AHangIsDiagnosedThenAbortedNamingRankAndCollective) {
  Start(2);
  for (int second = 0; second <= 31; ++second) {
    Pulse(0, 8, 7, second);
    Pulse(1, 7, 7, 0);
    Do([](JobController& controller) { controller.OnTick(); });
    if (second == 6) {
      ASSERT_EQ(effects_.events.size(), 1u);
      EXPECT_EQ(effects_.events[0].type(), "HANG_SUSPECTED");
      EXPECT_EQ(effects_.at_once.size(), 2u);
    }
    if (second == 30) {
      EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
    }
    Pass(1);
  }
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_HANG);
  EXPECT_EQ(job_.job().root_cause().rank(), 1);
  EXPECT_EQ(job_.job().root_cause().collective(), "reduce_scatter layers.1, sequence 8");
}

// What the coordinator did not hear while it stood still is nobody's silence.
TEST_F(JobControllerTest, ACoordinatorThatStoodStillJudgesByWhatItHearsAfterwards) {
  const auto tick = [&] { Do([](JobController& controller) { controller.OnTick(); }); };
  const auto sleep = [&](double seconds) {
    Pass(seconds);
    Do([&](JobController& controller) { controller.OnStoodStill(absl::Seconds(seconds)); });
  };
  Start(2);
  Pulse(0, 8, 7, 4);
  Pulse(1, 8, 7, 4);
  sleep(42);
  tick();
  EXPECT_TRUE(effects_.events.empty());
  // Rank 0 went on; rank 1's heartbeat is still on its way.
  Pulse(0, 90, 89, 0.1);
  Pass(6);
  tick();
  EXPECT_TRUE(effects_.events.empty());
  Pulse(0, 91, 91, 0);
  Pulse(1, 91, 91, 0);
  tick();
  EXPECT_TRUE(effects_.events.empty());
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);

  // A rank that did stop meanwhile has its full silence, and no more than that.
  Pulse(0, 92, 91, 0);
  Pulse(1, 92, 91, 0);
  sleep(42);
  for (int second = 0; second <= 31; ++second) {
    Pulse(0, 92, 91, second);
    Pulse(1, 92, 91, 0);
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING) << second;
    tick();
    Pass(1);
  }
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_HANG);
  EXPECT_EQ(job_.job().root_cause().rank(), 1);
}

TEST_F(JobControllerTest, NoDeadlineRunsWhileTheCoordinatorStandsStill) {
  std::vector<records::MemberRecord> members(2);
  members[1].set_rank(1);
  Do([&](JobController& controller) { controller.Place(members); });
  const auto tick_after = [&](double seconds, double pause) {
    Pass(seconds);
    if (pause > 0) {
      Pass(pause);
      Do([&](JobController& controller) { controller.OnStoodStill(absl::Seconds(pause)); });
    }
    Do([](JobController& controller) { controller.OnTick(); });
  };
  tick_after(60, 300);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_STARTING);
  tick_after(59, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_STARTING);
  tick_after(1, 0);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_JOIN_TIMEOUT);
  ASSERT_EQ(effects_.at_once.size(), 2u);
  tick_after(9, 60);  // the kill is repeated after 10 s
  EXPECT_TRUE(effects_.at_once.empty());
  tick_after(1, 0);
  EXPECT_EQ(effects_.at_once.size(), 2u);
}

TEST_F(JobControllerTest, NoTwoEpochsAreAliveAtOnce) {
  Start(3);
  Exit(0, 11);
  EXPECT_EQ(effects_.at_once.size(), 2u);
  for (const Outgoing& out : effects_.at_once) {
    EXPECT_EQ(out.message.stop_rank().mode(), v1::STOP_MODE_KILL);
  }
  const auto wants = [&] {
    bool result = false;
    Do([&](JobController& controller) { result = controller.WantsPlacement(); });
    return result;
  };
  Exit(1, 9);
  EXPECT_FALSE(wants()) << "rank 2 is not released";
  Exit(2, 9);
  EXPECT_TRUE(wants());
  EXPECT_EQ(job_.job().root_cause().signal(), 11);
}

// Rank 1 is killed by `kill -9`. Whoever tells of it first, and whoever is blamed at first: rank 1
// died.
TEST_F(JobControllerTest, AKilledRankIsTheRootCauseInWhateverOrderReportsCome) {
  for (const int order : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(order);
    job_ = JobRuntime();
    SetUp();
    Start(3);
    if (order == 0) Exit(1, 9);
    if (order == 1) LosePeer(0, 1);
    // Rank 2 blames a rank that is well; it is killed by us before the dead one's exit arrives.
    if (order >= 2) LosePeer(2, 0);
    if (order == 3) LosePeer(0, 1);
    // The dead rank itself had lost a peer.
    if (order == 4) LosePeer(1, 2);
    if (order >= 2) Exit(0, 9, true);
    if (order != 0) Exit(1, 9);
    if (order < 2) Exit(0, 9, true);
    Exit(2, 9, true);
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
    const v1::RootCause& cause = job_.job().root_cause();
    EXPECT_EQ(cause.cause(), v1::FAILURE_CAUSE_RANK_DIED);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_EQ(cause.signal(), 9);
    EXPECT_EQ(job_.attempts.back().cause(), v1::FAILURE_CAUSE_RANK_DIED);
  }
}

TEST_F(JobControllerTest, ARankThatAPeerBlamedAndWeKilledHasNotDied) {
  Start(2);
  LosePeer(0, 1);
  // On clocks that disagree the exit may seem older than the kill.
  now_.wall -= absl::Seconds(5);
  Exit(1, 9, true);
  Exit(0, 15, true);
  const v1::RootCause& cause = job_.job().root_cause();
  EXPECT_EQ(cause.cause(), v1::FAILURE_CAUSE_COMMUNICATION);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_EQ(cause.signal(), 0);
}

TEST_F(JobControllerTest, WhatARankPassesOnForAPeerIsThatPeersFault) {
  Start(3);
  v1::RankFailure failure;
  failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
  failure.set_message("write(/data/x): No space left on device");
  failure.set_peer(2);
  Do([&](JobController& controller) { controller.OnFailure(0, failure); });
  const v1::RootCause& cause = job_.job().root_cause();
  EXPECT_EQ(cause.rank(), 2);
  EXPECT_EQ(cause.worker(), "workers/w2");
  EXPECT_EQ(cause.message(), "rank 2 on w2: write(/data/x): No space left on device");
  // The rank in trouble may still write its last lines.
  ASSERT_EQ(effects_.at_once.size(), 3u);
  for (const Outgoing& out : effects_.at_once) {
    const v1::StopRank& stop = out.message.stop_rank();
    EXPECT_EQ(stop.mode(), stop.key().rank() == 2 ? v1::STOP_MODE_TERMINATE : v1::STOP_MODE_KILL);
  }
}

TEST_F(JobControllerTest, AnUnansweredStopBecomesAKill) {
  spec().mutable_limits()->set_grace_period_seconds(10);
  Start(1);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Cancel("enough").ok()); });
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_TERMINATE);
  Pass(14);
  Do([](JobController& controller) { controller.OnTick(); });
  EXPECT_TRUE(effects_.at_once.empty());
  Pass(2);
  Do([](JobController& controller) { controller.OnTick(); });
  ASSERT_EQ(effects_.at_once.size(), 1u);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_KILL);
  Exit(0, 9);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobControllerTest, TheRunTimeLimitCountsAllAttempts) {
  spec().mutable_limits()->set_max_run_seconds(100);
  Start(1);
  Pass(60);
  Exit(0, 11);
  Pass(1000);
  Start(1);
  Pass(39);
  Do([](JobController& controller) { controller.OnTick(); });
  EXPECT_TRUE(effects_.at_once.empty());
  Pass(2);
  Do([](JobController& controller) { controller.OnTick(); });
  EXPECT_EQ(effects_.at_once.size(), 1u);
  Exit(0, 15);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_MAX_RUN_TIME);
}

// A failure that the job got over, or that a cancel cut short, is no cause of what came after.
TEST_F(JobControllerTest, TheCauseIsOfTheStateThatTheJobIsIn) {
  Start(1);
  Exit(0, 9);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_RANK_DIED);
  Start(1);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_RANK_DIED);

  Exit(0, 9);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_RANK_DIED);
  Do([](JobController& controller) { EXPECT_TRUE(controller.Cancel("").ok()); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
}

TEST_F(JobControllerTest, ACancelWhileAFailedEpochEndsLeavesNoCause) {
  Start(2);
  Exit(0, 9);
  Do([](JobController& controller) { EXPECT_TRUE(controller.Cancel("enough").ok()); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  Exit(1, 9, true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  EXPECT_EQ(job_.job().reason(), "enough");
}

}  // namespace
}  // namespace fsdp::coordinator

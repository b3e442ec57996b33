// One job's life with time as an argument: deadlines and what follows an epoch.

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

TEST_F(JobControllerTest, TheNewestEvaluationsStayWithTheProgress) {
  Start(1);
  v1::StepReport report;
  report.mutable_metrics()->set_step(1);
  v1::EvaluationLoss& set = *report.mutable_metrics()->add_evaluations();
  set.set_name("code");
  set.set_loss(2.5);
  Do([&](JobController& controller) { controller.OnStep(0, report); });
  Step(2);
  ASSERT_EQ(job_.job().progress().evaluations_size(), 1);
  EXPECT_EQ(job_.job().progress().evaluations(0).name(), "code");
  EXPECT_EQ(job_.job().progress().evaluations(0).loss(), 2.5);
}

// Text takes as long as it is long to become tokens; standing still while one does it does not.
TEST_F(JobControllerTest, MakingTokensIsNoLateJoinWhileItsPulseGoesOn) {
  spec().mutable_limits()->set_join_timeout_seconds(60);
  std::vector<records::MemberRecord> members(2);
  members[1].set_rank(1);
  Do([&](JobController& controller) { controller.Place(members); });
  Do([](JobController& controller) { controller.OnJoined(0, v1::RankJoined()); });
  v1::RankPulse pulse;
  pulse.set_phase(v1::PHASE_TOKENIZE);
  const auto pass_a_second = [&] {
    Do([&](JobController& controller) { controller.OnPulse(1, pulse); });
    Do([](JobController& controller) { controller.OnTick(); });
    Pass(1);
  };
  for (int second = 0; second < 600; ++second) {
    pulse.set_beats(second + 1);
    pass_a_second();
  }
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_STARTING);
  // From here the daemon repeats the last pulse.
  for (int second = 0; second < 59; ++second) pass_a_second();
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_STARTING);
  for (int second = 0; second < 2; ++second) pass_a_second();
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_JOIN_TIMEOUT);
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

// The daemon looks at the process when it is asked to: before the abort, or only just after it.
TEST_F(JobControllerTest, AHangOfAProcessThatCannotRunSaysSo) {
  const std::string stopped = "rank 1's process is stopped (state T): pid 7, by SIGSTOP";
  for (const int told_after : {6, 32}) {
    SCOPED_TRACE(told_after);
    job_ = JobRuntime();
    SetUp();
    Start(2);
    for (int second = 0; second <= 32; ++second) {
      Pulse(0, 8, 7, second);
      if (second == 0) Pulse(1, 8, 7, 0);
      Do([](JobController& controller) { controller.OnTick(); });
      if (second == told_after) {
        v1::RankNotice notice;
        notice.set_type("TRAINER_STUCK");
        notice.set_message(stopped);
        Do([&](JobController& controller) { controller.OnNotice(1, notice); });
      }
      Pass(1);
    }
    Exit(1, 9, true);
    Exit(0, 9, true);
    const v1::RootCause& cause = job_.attempts.back().root_cause();
    EXPECT_EQ(cause.cause(), v1::FAILURE_CAUSE_HANG);
    EXPECT_THAT(cause.message(),
                AllOf(HasSubstr("reduce_scatter layers.1, sequence 8 pending"),
                      HasSubstr("rank 1 is in it"), HasSubstr(" (rank 1 is on w1); " + stopped)));
    EXPECT_THAT(job_.job().reason(), HasSubstr(stopped));
  }
}

// Stopped inside a collective that the others went into earlier; its daemon repeats its last pulse
// and lets the pending time grow.
TEST_F(JobControllerTest, ATrainerThatStandsStillIsKnownByItsBeats) {
  Start(2);
  const auto pulse = [&](int rank, std::int64_t sequence, double pending, std::int64_t beats) {
    v1::RankPulse pulse;
    pulse.set_step(50);
    pulse.set_phase(v1::PHASE_TRAIN);
    pulse.set_collective_started(sequence);
    pulse.set_collective_finished(sequence - 1);
    pulse.set_collective("all_gather embed");
    pulse.set_collective_pending_seconds(pending);
    pulse.set_beats(beats);
    Do([&](JobController& controller) { controller.OnPulse(rank, pulse); });
  };
  for (int second = 0; second <= 31; ++second) {
    // The pulse is older than the stop: rank 1 got as far as its peer.
    pulse(0, 9, second, second + 1);
    pulse(1, 9, second - 0.5, 1);
    Do([](JobController& controller) { controller.OnTick(); });
    Pass(1);
  }
  const v1::RootCause& cause = job_.job().root_cause();
  EXPECT_EQ(cause.cause(), v1::FAILURE_CAUSE_HANG);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_EQ(cause.collective(), "all_gather embed, sequence 9");
  EXPECT_THAT(cause.message(), HasSubstr("rank 1 is in it and has been silent for 31 s"));
}

// It was let go on meanwhile: a hang of a later step is another one's.
TEST_F(JobControllerTest, AProcessThatWentOnIsNoLongerStuck) {
  Start(2);
  v1::RankNotice notice;
  notice.set_type("TRAINER_STUCK");
  notice.set_message("is stopped (state T)");
  Do([&](JobController& controller) { controller.OnNotice(1, notice); });
  Step(50);
  for (int second = 0; second <= 31; ++second) {
    Pulse(0, 8, 7, second);
    Pulse(1, 7, 7, 0);
    Do([](JobController& controller) { controller.OnTick(); });
    Pass(1);
  }
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_HANG);
  EXPECT_THAT(job_.job().root_cause().message(), ::testing::Not(HasSubstr("state T")));
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

TEST_F(JobControllerTest, ALostPeerIsNamedWithItsWorkerTheCollectiveAndWhereToLook) {
  for (const auto* host : {"b", "a"}) {
    job_ = JobRuntime();
    SetUp();
    // Ranks and workers are numbered apart.
    std::vector<records::MemberRecord> members(2);
    members[0].set_worker("w5");
    members[0].set_host("a");
    members[1].set_rank(1);
    members[1].set_worker("w3");
    members[1].set_host(host);
    Do([&](JobController& controller) { controller.Place(members); });
    for (const int rank : {0, 1}) {
      Do([&](JobController& controller) { controller.OnJoined(rank, {}); });
    }
    LosePeer(0, 1);
    const v1::RootCause& cause = job_.job().root_cause();
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_EQ(cause.worker(), "workers/w3");
    EXPECT_EQ(cause.message(),
              std::string("rank 0 on w5 lost rank 1 on w3 in all_gather layers.3, sequence 47: "
                          "connection reset by peer; look at fsdpctl logs a --attempt 1 --rank 1 "
                          "and, if it ends without a reason, at the ") +
                  (*host == 'b' ? "network between a and b" : "kernel's log of a"));
  }
}

TEST_F(JobControllerTest, ALossOfNobodyInParticularSaysSo) {
  Start(2);
  LosePeer(0, std::nullopt);
  EXPECT_EQ(job_.job().root_cause().message(),
            "rank 0 on w0 lost its peers in all_gather layers.3, sequence 47: connection reset by "
            "peer; look for the rank that ended or stood still: fsdpctl logs a --attempt 1");
}

// -----------------------------------------------------------------------------------------------
// A job that will fail for good says nothing of a recovery.

TEST_F(JobControllerTest, AFailureThatIsNotRetriedIsNoRecovery) {
  for (const v1::FailureCause cause :
       {v1::FAILURE_CAUSE_DATA, v1::FAILURE_CAUSE_NON_FINITE, v1::FAILURE_CAUSE_OUT_OF_MEMORY,
        v1::FAILURE_CAUSE_RANK_FAILED, v1::FAILURE_CAUSE_CHECKPOINT}) {
    SCOPED_TRACE(v1::FailureCause_Name(cause));
    job_ = JobRuntime();
    SetUp();
    Start(2);
    v1::RankFailure failure;
    failure.set_cause(cause);
    failure.set_message("corrupt");
    Do([&](JobController& controller) { controller.OnFailure(1, failure); });
    ASSERT_EQ(effects_.events.size(), 1u);
    EXPECT_EQ(effects_.events[0].state(), v1::JOB_STATE_UNSPECIFIED);
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(job_.job().reason(),
              "rank 1 on w1: corrupt; it is not retried: the job fails when all ranks are gone");
    Exit(0, 9, true);
    bool comes_back = true;
    Do([&](JobController& controller) { comes_back = controller.ComesBack(); });
    EXPECT_FALSE(comes_back) << "it holds no place in the queue";
    Exit(1, 9, true);
    EXPECT_THAT(Types(), ElementsAre("FAILED"));
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(job_.job().cause(), cause);
  }
}

TEST_F(JobControllerTest, ABudgetThatIsUsedUpAnnouncesNoRecovery) {
  spec().mutable_failure_policy()->set_max_infrastructure_restarts(1);
  Start(2);
  Exit(0, 11);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  Exit(1, 9, true);
  Pass(10);
  Start(2);
  Exit(0, 11);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  // What is found out later counts all the same: a worker's end is nobody's fault.
  LosePeer(1, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  Exit(1, 9, true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobControllerTest, ACauseThatTurnsOutToBeRetriedRecovers) {
  spec().mutable_failure_policy()->set_max_infrastructure_restarts(0);
  Start(2);
  LosePeer(0, 1);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  StoppedByItsWorker(1);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  Exit(0, 9, true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_DRAINED);
}

// -----------------------------------------------------------------------------------------------
// When it happened

// A daemon delivers what it kept through an outage.
TEST_F(JobControllerTest, EventsOfReportsCarryTheTimeOfTheReport) {
  Start(1);
  const absl::Time placed = now_.wall;
  Pass(100);
  const auto notice_at = [&](absl::Time time) {
    Do([&](JobController& controller) {
      controller.SetReportTime(time);
      controller.OnNotice(0, {});
    });
    return absl::FromUnixSeconds(effects_.events.at(0).time().seconds());
  };
  EXPECT_EQ(notice_at(placed + absl::Seconds(20)), placed + absl::Seconds(20));
  EXPECT_EQ(effects_.events[0].sequence(), 4) << "order is that of receipt";
  // A clock that is wrong does not make events of the future, or of another epoch.
  EXPECT_EQ(notice_at(now_.wall + absl::Seconds(5)), now_.wall);
  EXPECT_EQ(notice_at(placed - absl::Hours(1)), placed);

  v1::RankExited exited;
  exited.set_signal(9);
  Do([&](JobController& controller) {
    controller.SetReportTime(placed + absl::Seconds(30));
    controller.OnExited(0, exited);
  });
  ASSERT_THAT(Types(), ElementsAre("RANK_DIED", "RESTARTING"));
  EXPECT_EQ(effects_.events[0].time().seconds(), absl::ToUnixSeconds(placed) + 30);
  EXPECT_EQ(effects_.events[1].time().seconds(), absl::ToUnixSeconds(now_.wall))
      << "that is decided only now";
  EXPECT_EQ(effects_.detection, absl::Seconds(70));
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

TEST_F(JobControllerTest, ALostWorkerIsNamedWithItsHost) {
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w7");
  members[0].set_host("node-3");
  Do([&](JobController& controller) { controller.Place(members); });
  Do([](JobController& controller) {
    controller.OnWorkerLost(WorkerId("w7"), "", "no heartbeat for 10.1 s", absl::Seconds(10));
  });
  EXPECT_EQ(job_.job().root_cause().message(),
            "rank 0 is lost with its worker w7 on node-3: no heartbeat for 10.1 s");
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

// One job's life with time as an argument: deadlines and what follows an epoch.

#include "coordinator/lifecycle/job_controller.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class JobControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.mutable_job().set_name("jobs/a");
    Do([](JobController& controller) { controller.Enqueue(); });
  }

  // One event at the current time; its effects stay in `effects_`.
  void Do(const std::function<void(JobController&)>& event) {
    effects_ = Effects();
    JobController controller(job_, options_, now_, effects_);
    event(controller);
  }
  void Pass(double seconds) {
    now_.mono = now_.mono + absl::Seconds(seconds);
    now_.wall += absl::Seconds(seconds);
  }
  v1::JobSpec& spec() { return *job_.mutable_job().mutable_spec()->mutable_spec(); }

  void Start(int ranks) {
    std::vector<records::MemberRecord> members;
    for (int rank = 0; rank < ranks; ++rank) {
      members.emplace_back().set_rank(rank);
      members.back().set_worker("w" + std::to_string(rank));
    }
    Do([&](JobController& controller) { controller.Place(members); });
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankJoined joined;
      joined.set_resume_step(job_.job().checkpoint().step());
      Do([&](JobController& controller) { controller.OnJoined(rank, joined); });
    }
  }
  void Exit(int rank, int signal, bool signalled_by_worker = false) {
    v1::RankExited exited;
    exited.set_signal(signal);
    exited.set_signalled_by_worker(signalled_by_worker);
    Do([&](JobController& controller) { controller.OnExited(rank, exited, now_.wall); });
  }
  void LosePeer(int rank, int peer) {
    v1::RankFailure failure;
    failure.set_cause(v1::FAILURE_CAUSE_COMMUNICATION);
    failure.set_message("connection reset by peer");
    failure.set_peer(peer);
    Do([&](JobController& controller) { controller.OnFailure(rank, failure); });
  }
  void Publish(std::int64_t step) {
    v1::ManifestProposal proposal;
    proposal.mutable_checkpoint()->set_step(step);
    Do([&](JobController& controller) { controller.OnManifest(0, proposal); });
  }
  void Step(std::int64_t step) {
    v1::StepReport report;
    report.mutable_metrics()->set_step(step);
    Do([&](JobController& controller) { controller.OnStep(0, report); });
  }
  // The next epoch's only rank does not get as far as joining. Effects stay of its exit.
  void FailToLoad(const std::string& message, bool damaged) {
    std::vector<records::MemberRecord> members(1);
    members[0].set_worker("w0");
    Do([&](JobController& controller) { controller.Place(members); });
    v1::RankFailure failure;
    failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
    failure.set_phase(v1::PHASE_START);
    failure.set_checkpoint_damaged(damaged);
    failure.set_message(message);
    Do([&](JobController& controller) { controller.OnFailure(0, failure); });
    v1::RankExited exited;
    exited.set_exit_code(11);
    Do([&](JobController& controller) { controller.OnExited(0, exited, now_.wall); });
  }
  void Pulse(int rank, std::int64_t started, std::int64_t finished, double pending) {
    v1::RankPulse pulse;
    pulse.set_step(50);
    pulse.set_phase(v1::PHASE_TRAIN);
    pulse.set_collective_started(started);
    pulse.set_collective_finished(finished);
    pulse.set_collective("reduce_scatter layers.1");
    pulse.set_collective_pending_seconds(pending);
    Do([&](JobController& controller) { controller.OnPulse(rank, pulse); });
  }

  Options options_;
  JobRuntime job_;
  TimePoint now_{MonotonicTime::FromSinceStart(absl::Seconds(1000)), absl::FromUnixSeconds(1000)};
  Effects effects_;
};

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

// None of the proposals that waited is on disk yet when all are admitted.
TEST_F(JobControllerTest, ABacklogOfProposalsDoesNotPushOutTheCheckpointThatIsOnDisk) {
  Start(1);
  Publish(10);
  Step(11);
  Pass(42);
  Do([](JobController& controller) { controller.OnStoodStill(absl::Seconds(42)); });
  for (const int step : {20, 30, 40}) {
    Publish(step);
    Step(step + 1);
  }
  Exit(0, 9);
  for (const int step : {40, 30, 20}) {
    EXPECT_EQ(job_.job().checkpoint().step(), step);
    FailToLoad("it has no manifest.json", true);
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  }
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  // The list is the usual one again with the next proposal after the backlog.
  Pass(11);
  Start(1);
  for (const int step : {20, 30}) Publish(step);
  EXPECT_EQ(job_.checkpoints.size(), 2u);
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

TEST_F(JobControllerTest, ACheckpointThatWasAdmittedButNeverRenamedIsGivenUp) {
  Start(1);
  Publish(10);
  Publish(20);
  Exit(0, 9);
  // The next epoch cannot load step 20.
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w0");
  Do([&](JobController& controller) { controller.Place(members); });
  EXPECT_EQ(effects_.when_durable[0].message.start_rank().resume().step(), 20);
  v1::RankFailure failure;
  failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
  failure.set_message("no manifest");
  Do([&](JobController& controller) { controller.OnFailure(0, failure); });
  v1::RankExited exited;
  exited.set_exit_code(1);
  Do([&](JobController& controller) { controller.OnExited(0, exited, now_.wall); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_THAT(effects_.dropped_checkpoints, ::testing::ElementsAre(20));
}

// Unlike a shard's, a manifest's damage shows before the epoch has agreed on anything.
TEST_F(JobControllerTest, ADamagedManifestIsGivenUpBeforeTheCommit) {
  Start(1);
  Publish(10);
  Publish(20);
  Step(21);  // the checkpoint of step 20 is confirmed
  Exit(0, 9);
  FailToLoad("/c/step-00000020.e00001/manifest.json: the checksum is of other bytes", true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_THAT(effects_.dropped_checkpoints, ::testing::ElementsAre(20));
  EXPECT_EQ(job_.job().restarts().user(), 0);
  const auto dropped = std::find_if(effects_.events.begin(), effects_.events.end(),
                                    [](const auto& e) { return e.type() == "CHECKPOINT_DROPPED"; });
  ASSERT_NE(dropped, effects_.events.end());
  EXPECT_THAT(dropped->message(), HasSubstr("step-00000020.e00001/manifest.json: the checksum"));
  EXPECT_THAT(dropped->message(), HasSubstr("going back to step 10"));

  // The last one is not given up, and nothing is begun from the start behind the user's back.
  FailToLoad("/c/step-00000010.e00001/manifest.json has 0 bytes", true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_THAT(job_.job().reason(), HasSubstr("step-00000010.e00001/manifest.json has 0 bytes"));
  EXPECT_THAT(job_.job().reason(), HasSubstr("no other checkpoint of the job is left"));
}

TEST_F(JobControllerTest, AFolderThatARankDoesNotSeeIsNoDamage) {
  Start(1);
  Publish(10);
  Publish(20);
  Step(21);
  Exit(0, 9);
  FailToLoad("/c/step-00000020.e00001 is no checkpoint: it has no manifest.json", false);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.job().checkpoint().step(), 20);
  EXPECT_THAT(job_.job().reason(), ::testing::Not(HasSubstr("is left")));
}

TEST_F(JobControllerTest, ADamagedNewestCheckpointIsGivenUpOnceItsEpochAgreedOnAllElse) {
  Start(1);
  Publish(10);
  Publish(20);
  Exit(0, 9);
  Start(1);  // joined and committed: step 20 is loaded now
  v1::RankFailure failure;
  failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
  failure.set_message("rank-00000.safetensors is damaged");
  Do([&](JobController& controller) { controller.OnFailure(0, failure); });
  v1::RankExited exited;
  exited.set_exit_code(11);
  Do([&](JobController& controller) { controller.OnExited(0, exited, now_.wall); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  EXPECT_THAT(effects_.dropped_checkpoints, ::testing::ElementsAre(20));
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

// `resumeFrom` a checkpoint of step 200 with maxSteps 100: the true step, the checkpoint's own
// loss, and words for it instead of "finished".
TEST_F(JobControllerTest, ACheckpointBeyondTheLimitIsToldAsSuch) {
  spec().mutable_limits()->set_max_steps(100);
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w0");
  Do([&](JobController& controller) { controller.Place(members); });
  v1::RankJoined joined;
  joined.set_resume_step(200);
  joined.set_total_steps(100);
  Do([&](JobController& controller) { controller.OnJoined(0, joined); });
  v1::RankExited exited;
  exited.set_finished(true);
  exited.set_last_step(200);
  exited.mutable_result()->set_train_loss(1.5);
  Do([&](JobController& controller) { controller.OnExited(0, exited, now_.wall); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.job().progress().step(), 200);
  EXPECT_EQ(job_.job().progress().loss(), 1.5);
  EXPECT_EQ(job_.job().reason(),
            "nothing left to train: the checkpoint is at step 200, limits.maxSteps is 100");
}

// The same end after a crash behind its own last checkpoint is an ordinary one.
TEST_F(JobControllerTest, AnEndThatOnlyHadToBeFinishedIsAFinish) {
  Start(1);
  v1::StepReport report;
  report.mutable_metrics()->set_step(100);
  report.mutable_metrics()->set_loss(2.5);
  Do([&](JobController& controller) { controller.OnStep(0, report); });
  Publish(100);
  Exit(0, 9);
  Pass(200);
  Start(1);
  v1::RankExited exited;
  exited.set_finished(true);
  exited.set_last_step(100);
  Do([&](JobController& controller) { controller.OnExited(0, exited, now_.wall); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.job().progress().loss(), 2.5);
  EXPECT_EQ(job_.job().reason(), "finished after step 100");
}

TEST_F(JobControllerTest, OnlyTheNewestCheckpointsAreListed) {
  spec().mutable_checkpoint()->set_keep_last(2);
  spec().mutable_checkpoint()->set_keep_every_steps(30);
  Start(1);
  for (const int step : {10, 20, 30, 40, 50, 60}) Publish(step);
  std::vector<std::int64_t> steps;
  for (const v1::CheckpointInfo& info : job_.checkpoints) steps.push_back(info.step());
  EXPECT_THAT(steps, ::testing::ElementsAre(30, 50, 60));
}

TEST_F(JobControllerTest, VerbsThatTheStateDoesNotAllowSaySo) {
  Do([](JobController& controller) {
    const absl::Status status = controller.Resume();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/a is QUEUED"));
    EXPECT_EQ(controller.Restart("").code(), absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace fsdp::coordinator

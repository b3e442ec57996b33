// One job that is stopped: by verbs, by a drain, by the end of a worker's daemon.

#include <string>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobStopTest : public JobControllerTest {
 protected:
  void End(v1::JobState state) {
    job_.mutable_job().set_state(state);
    job_.record.clear_phase();
  }
  std::vector<std::string> Warnings() const {
    std::vector<std::string> found;
    for (const v1::JobEvent& event : effects_.events) {
      if (event.severity() == v1::EVENT_SEVERITY_WARNING) found.push_back(event.message());
    }
    return found;
  }
  void WorkerShutsDown(const std::string& worker) {
    Do([&](JobController& controller) {
      controller.OnWorkerShutdown(WorkerId(worker), "Terminated");
    });
  }
};

// A restart of a job whose ranks stand still took the whole grace period, in which they could not
// save.
TEST_F(JobStopTest, RanksThatStandStillAreNotWaitedForLong) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  for (const bool hangs : {false, true}) {
    SCOPED_TRACE(hangs);
    job_ = JobRuntime();
    SetUp();
    spec().mutable_checkpoint()->set_dir("/ckpt");
    Start(2);
    for (int second = 0; hangs && second <= 6; ++second) {
      Pulse(0, 8, 7, second);
      Pulse(1, 7, 7, 0);
      Do([](JobController& controller) { controller.OnTick(); });
      Pass(1);
    }
    Do([](JobController& controller) { EXPECT_TRUE(controller.Restart("").ok()); });
    ASSERT_EQ(effects_.at_once.size(), 2u);
    for (const Outgoing& out : effects_.at_once) {
      EXPECT_EQ(out.message.stop_rank().mode(), v1::STOP_MODE_CHECKPOINT);
      EXPECT_EQ(out.message.stop_rank().grace_seconds(), hangs ? 10 : 60);
    }
    // A daemon that does not end them is told to, after its margin.
    Pass(16);
    Do([](JobController& controller) { controller.OnTick(); });
    const bool killed = !effects_.at_once.empty();
    EXPECT_EQ(killed, hangs);
  }
}

TEST_F(JobStopTest, TheEndOfADaemonMovesTheJobAtNoCost) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  Start(2);
  WorkerShutsDown("w1");
  ASSERT_EQ(effects_.at_once.size(), 2u);
  for (const Outgoing& out : effects_.at_once) {
    EXPECT_EQ(out.message.stop_rank().mode(), v1::STOP_MODE_CHECKPOINT);
    EXPECT_EQ(out.message.stop_rank().reason(), "worker w1 is shutting down: Terminated");
  }
  // Every heartbeat says so again.
  WorkerShutsDown("w1");
  EXPECT_THAT(effects_.at_once, IsEmpty());
  // What was saved in the grace period counts.
  Save(7);
  Exit(0, 0);
  StoppedByItsWorker(1);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job_.job().reason(), "worker w1 is shutting down: Terminated");
  EXPECT_EQ(job_.job().checkpoint().step(), 7);
  EXPECT_EQ(job_.job().restarts().free(), 1);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 0);
  EXPECT_EQ(job_.attempts.back().state(), v1::ATTEMPT_STATE_STOPPED);
}

TEST_F(JobStopTest, AWorkerWithoutARankOfTheJobConcernsNobody) {
  Start(1);
  WorkerShutsDown("w7");
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(effects_.events, IsEmpty());
}

// The heartbeat did not get through: the exit report says it too.
TEST_F(JobStopTest, ARankThatItsWorkerStoppedIsNoOrphan) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  Start(2);
  StoppedByItsWorker(1);
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job_.job().root_cause().message(),
            "rank 1 on w1 was stopped by its worker after step 7: the worker is shutting down: "
            "Terminated");
  ASSERT_EQ(effects_.at_once.size(), 1u);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_CHECKPOINT)
      << "its peers stop at the same step, rank 0 with a checkpoint to publish";
  Exit(0, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job_.job().restarts().free(), 1);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 0);
}

// Peers stop with the rank whose worker ends, and theirs may be heard first.
TEST_F(JobStopTest, ARankThatWentAlongIsNotTheCause) {
  Start(2);
  Exit(0, 0);
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_ORPHANED);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_DRAIN);
  StoppedByItsWorker(1);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job_.job().root_cause().rank(), 1);
  EXPECT_EQ(job_.job().restarts().free(), 1);
  EXPECT_EQ(job_.attempts.back().cause(), v1::FAILURE_CAUSE_DRAINED);
}

TEST_F(JobStopTest, AGracePeriodThatIsOverIsStillTheWorkersDoing) {
  Start(2);
  LosePeer(0, 1);
  StoppedByItsWorker(1, 9);
  Exit(0, 9, true);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job_.job().restarts().free(), 1);
}

TEST_F(JobStopTest, WhatATrainerDidWrongWhileItsWorkerEndedIsItsOwn) {
  Start(1);
  v1::RankExited exited;
  exited.set_exit_code(1);
  exited.add_last_lines("CUDA error");
  exited.set_worker_stop_reason("the worker is shutting down: Terminated");
  Do([&](JobController& controller) { controller.OnExited(0, exited); });
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_RANK_FAILED);
  EXPECT_THAT(job_.job().reason(), HasSubstr("CUDA error"));
}

// -----------------------------------------------------------------------------------------------
// Progress that no checkpoint keeps

TEST_F(JobStopTest, WhatLosesProgressSaysSoWithTheRemedy) {
  const auto verbs = {
      +[](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); },
      +[](JobController& controller) { ASSERT_TRUE(controller.Restart("").ok()); },
      +[](JobController& controller) { controller.Drain(WorkerId("w0"), "fan"); },
      +[](JobController& controller) { controller.OnWorkerShutdown(WorkerId("w0"), "Terminated"); },
  };
  for (const auto& verb : verbs) {
    Start(1);
    Step(12);
    Do(verb);
    EXPECT_THAT(effects_.warnings,
                ElementsAre(AllOf(HasSubstr("jobs/a writes no checkpoints"), HasSubstr("step 12"),
                                  HasSubstr("from the beginning"),
                                  HasSubstr("Set checkpoint.dir in the spec"))));
    EXPECT_EQ(Warnings(), effects_.warnings);
    Exit(0, 0);
    End(v1::JOB_STATE_RECOVERING);
  }
}

TEST_F(JobStopTest, ARestartIsToldOnce) {
  Start(1);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Restart("new code").ok()); });
  EXPECT_THAT(Types(), ElementsAre("RESTART_REQUESTED"));
  Exit(0, 0);
  EXPECT_THAT(Types(), ElementsAre("RESTARTING"));
  EXPECT_EQ(effects_.events[0].message(), "new code");
  // It waits for workers: nothing is told to stop, and no second restart follows.
  Do([](JobController& controller) { ASSERT_TRUE(controller.Restart("").ok()); });
  EXPECT_THAT(Types(), ElementsAre("RESTART_REQUESTED"));
}

TEST_F(JobStopTest, ARestartSavesFirst) {
  for (const char* dir : {"/ckpt", ""}) {
    spec().mutable_checkpoint()->set_dir(dir);
    Start(1);
    Step(12);
    Do([](JobController& controller) { ASSERT_TRUE(controller.Restart("").ok()); });
    ASSERT_EQ(effects_.at_once.size(), 1u);
    EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(),
              *dir == 0 ? v1::STOP_MODE_DRAIN : v1::STOP_MODE_CHECKPOINT);
    Exit(0, 0);
    End(v1::JOB_STATE_RECOVERING);
  }
}

TEST_F(JobStopTest, NothingIsLostWithACheckpointFolderOrBeforeTheFirstStep) {
  Start(1);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); });
  EXPECT_THAT(effects_.warnings, IsEmpty());
  Exit(0, 0);
  End(v1::JOB_STATE_RECOVERING);

  spec().mutable_checkpoint()->set_dir("/ckpt");
  Start(1);
  Step(12);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); });
  EXPECT_THAT(effects_.warnings, IsEmpty());
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(JobStopTest, AJobThatBeganFromACheckpointGoesBackToThatOne) {
  spec().mutable_checkpoint()->set_resume_from("/other/step-00000100.e00001");
  Start(1);
  Step(112);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); });
  EXPECT_THAT(effects_.warnings, ElementsAre(HasSubstr("from checkpoint.resumeFrom")));
}

// -----------------------------------------------------------------------------------------------
// Resume takes a suspend back; restart is for what runs or has ended without success.

TEST_F(JobStopTest, EveryStateHasOneVerbThatStartsTheJobAgain) {
  const auto resume = [&] {
    std::string message;
    Do([&](JobController& controller) { message = std::string(controller.Resume().message()); });
    return message;
  };
  const auto restart = [&] {
    std::string message;
    Do([&](JobController& controller) { message = std::string(controller.Restart("").message()); });
    return message;
  };
  EXPECT_EQ(resume(), "jobs/a is QUEUED: it cannot be resumed; only a suspended job is resumed");
  EXPECT_EQ(restart(), "jobs/a is QUEUED: it cannot be restarted; it waits to be started anyway");
  for (const v1::JobState state : {v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    End(state);
    EXPECT_THAT(resume(), HasSubstr("only a suspended job is resumed: restart this one"));
    EXPECT_EQ(restart(), "");
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_QUEUED);
  }
  End(v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(restart(), "jobs/a is SUSPENDED: it cannot be restarted; resume it");
  EXPECT_EQ(resume(), "");
  End(v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(resume(), HasSubstr("submit another job"));
  EXPECT_THAT(restart(), HasSubstr("submit another job"));
}

TEST_F(JobStopTest, ARefusedSuspendOrCancelTellsTheStateAndWhatToDo) {
  absl::Status status;
  const auto suspend = [&] {
    Do([&](JobController& controller) { status = controller.Suspend(""); });
    return std::string(status.message());
  };
  const auto cancel = [&] {
    Do([&](JobController& controller) { status = controller.Cancel(""); });
    return std::string(status.message());
  };
  End(v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(suspend(),
            "jobs/a is SUSPENDED: it cannot be suspended; it is stopped already: resume it to go "
            "on");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  End(v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(suspend(),
            "jobs/a is CANCELLING: it cannot be suspended; it is being stopped for good: restart "
            "it once it is CANCELLED");
  for (const v1::JobState state : {v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    End(state);
    EXPECT_THAT(suspend(), HasSubstr("it has ended: restart it for another try"));
  }
  End(v1::JOB_STATE_FAILED);
  EXPECT_THAT(cancel(), HasSubstr("it has ended: restart it for another try"));
  End(v1::JOB_STATE_SUCCEEDED);
  for (const std::string& message : {suspend(), cancel()}) {
    EXPECT_THAT(message, HasSubstr("jobs/a is SUCCEEDED"));
    EXPECT_THAT(message, HasSubstr("it has ended, and has nothing left to do"));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JobStopTest, ASuspendThatIsUnderWayIsNotBegunAgain) {
  Start(1);
  Do([](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); });
  Do([](JobController& controller) { ASSERT_TRUE(controller.Suspend("").ok()); });
  EXPECT_THAT(effects_.events, IsEmpty());
  EXPECT_THAT(effects_.at_once, IsEmpty());
  EXPECT_THAT(effects_.warnings,
              ElementsAre("jobs/a is being suspended already: resume it once it is SUSPENDED"));
  Do([](JobController& controller) {
    EXPECT_EQ(controller.Resume().message(),
              "jobs/a is RUNNING: it cannot be resumed; it is being suspended: resume it once it "
              "is SUSPENDED");
  });
}

}  // namespace
}  // namespace fsdp::coordinator

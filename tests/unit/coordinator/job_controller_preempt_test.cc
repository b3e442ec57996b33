// One job that makes room for another: it saves, yields, and waits at its place at no cost.

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::IsEmpty;

class JobPreemptTest : public JobControllerTest {
 protected:
  void Preempt(std::optional<absl::Duration> grace = std::nullopt) {
    Do([&](JobController& controller) { controller.Preempt("makes room for jobs/b", grace); });
  }
  bool Asks(bool (JobController::*question)() const) {
    Effects unused;
    return (JobController(job_, options_, now_, unused).*question)();
  }
};

TEST_F(JobPreemptTest, SavesYieldsAndWaitsWithItsBudgetsUntouched) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  spec().mutable_limits()->set_grace_period_seconds(30);
  Start(2);
  Step(5);
  Preempt();
  ASSERT_EQ(effects_.at_once.size(), 2u);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_CHECKPOINT);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().grace_seconds(), 30);
  EXPECT_EQ(job_.job().reason(), "yields: makes room for jobs/b");
  // It neither waits yet, nor are its devices kept for it.
  EXPECT_FALSE(Asks(&JobController::WantsPlacement));
  EXPECT_FALSE(Asks(&JobController::ComesBack));
  Save(5);
  Exit(0, 0);
  Pass(20);
  Exit(1, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_PREEMPTED);
  EXPECT_EQ(job_.attempts.back().cause(), v1::FAILURE_CAUSE_PREEMPTED);
  EXPECT_EQ(job_.attempts.back().state(), v1::ATTEMPT_STATE_STOPPED);
  EXPECT_EQ(job_.job().restarts().preemptions(), 1);
  EXPECT_EQ(job_.job().restarts().free(), 1);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 0);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  EXPECT_EQ(job_.job().checkpoint().step(), 5);
  EXPECT_TRUE(Asks(&JobController::WantsPlacement));
  EXPECT_FALSE(job_.record.has_earliest_start());
  // It has waited since now, not since it was submitted.
  EXPECT_EQ(job_.record.queued_time().seconds(), absl::ToUnixSeconds(now_.wall));
}

TEST_F(JobPreemptTest, TheGraceIsItsQueues) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  spec().mutable_limits()->set_grace_period_seconds(30);
  Start(1);
  Preempt(absl::Seconds(300));
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().grace_seconds(), 300);
  Pass(299);
  Do([](JobController& controller) { controller.OnTick(); });
  EXPECT_THAT(effects_.at_once, IsEmpty());
  Pass(10);
  Do([](JobController& controller) { controller.OnTick(); });
  ASSERT_EQ(effects_.at_once.size(), 1u);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_KILL);
  Exit(0, 9, true);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_PREEMPTED);
  // Of this stop only: another one has the job's own.
  Start(1);
  Do([](JobController& controller) { EXPECT_TRUE(controller.Suspend("").ok()); });
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().grace_seconds(), 30);
}

TEST_F(JobPreemptTest, WhatEndsAlreadyIsLeftAlone) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  Start(1);
  Do([](JobController& controller) { EXPECT_TRUE(controller.Suspend("").ok()); });
  Preempt();
  EXPECT_THAT(effects_.at_once, IsEmpty());
  Exit(0, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(job_.job().restarts().preemptions(), 0);
  Preempt();
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUSPENDED);
}

TEST_F(JobPreemptTest, WithoutADirectoryItTellsWhatIsLost) {
  Start(1);
  Step(5);
  Preempt();
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_DRAIN);
  ASSERT_EQ(effects_.warnings.size(), 1u);
}

// Cancelled while it yields: the user's word counts.
TEST_F(JobPreemptTest, ACancelOvertakesIt) {
  spec().mutable_checkpoint()->set_dir("/ckpt");
  Start(1);
  Preempt();
  Do([](JobController& controller) { EXPECT_TRUE(controller.Cancel("").ok()); });
  Exit(0, 15, true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job_.job().restarts().preemptions(), 0);
}

}  // namespace
}  // namespace fsdp::coordinator

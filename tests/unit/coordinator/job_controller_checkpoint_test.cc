// A job and its checkpoints: which are listed, which are given up, and what is left to train.

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace fsdp::coordinator

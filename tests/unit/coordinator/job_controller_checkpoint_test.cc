// One job's checkpoints: which are listed, and which is gone back to when one cannot be loaded.

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Waiting for a coordinator that is away, several pile up: none of them is on disk yet when all are
// admitted, however long that takes.
TEST_F(JobControllerTest, ABacklogOfProposalsDoesNotPushOutTheCheckpointThatIsOnDisk) {
  Start(1);
  Save(5);
  Save(10);
  // Steps that were trained meanwhile say nothing about manifests.
  for (const int step : {20, 30, 40}) {
    Publish(step);
    Step(step + 1);
    Pass(60);
  }
  EXPECT_TRUE(effects_.dropped_checkpoints.empty());
  Exit(0, 9);
  for (const int step : {40, 30, 20}) {
    EXPECT_EQ(job_.job().checkpoint().step(), step);
    FailToLoad("it has no manifest.json", true);
    EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  }
  EXPECT_THAT(Listed(), ElementsAre(5, 10));
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  Start(1);
  Publish(20);
  EXPECT_THAT(Listed(), ElementsAre(5, 10, 20));
  Written(20);
  EXPECT_THAT(Listed(), ElementsAre(10, 20));
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(5));
}

// The coordinator was away; what piled up is admitted in one go, and rank 0 is dead by then. Of
// its shards without a manifest the next epoch loses nothing and does not fail.
TEST_F(JobControllerTest, AnEpochPassesOverWhatWasNeverWritten) {
  Start(1);
  Save(10);
  for (const int step : {20, 30, 40}) Publish(step);
  Exit(0, 9);
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w0");
  Do([&](JobController& controller) { controller.Place(members); });
  const v1::StartRank start = effects_.when_durable.at(0).message.start_rank();
  EXPECT_EQ(start.resume().step(), 40);
  ASSERT_EQ(start.resume_before_size(), 3);
  EXPECT_EQ(start.resume_before(0).step(), 30);
  EXPECT_EQ(start.resume_before(2).step(), 10);
  EXPECT_FALSE(start.resume_or_begin()) << "step 10 is known to be there";

  v1::RankJoined joined;
  joined.set_resume_step(20);
  Do([&](JobController& controller) { controller.OnJoined(0, joined); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job_.job().checkpoint().step(), 20);
  EXPECT_THAT(Listed(), ElementsAre(10, 20));
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(40, 30));
  EXPECT_THAT(Types(), ElementsAre("CHECKPOINT_DROPPED", "CHECKPOINT_DROPPED", "EPOCH_COMMITTED"));
  EXPECT_THAT(effects_.events[1].message(), HasSubstr("of step 30 was never written"));
  EXPECT_THAT(effects_.events[1].message(), HasSubstr("going back to step 20"));
  // The first cause is still the one that counts, and paid for once.
  EXPECT_EQ(job_.job().root_cause().cause(), v1::FAILURE_CAUSE_RANK_DIED);
  EXPECT_EQ(job_.job().epoch(), 2);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 1);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  v1::RankRunning running;
  running.set_first_step(21);
  Do([&](JobController& controller) { controller.OnRunning(0, running); });
  EXPECT_THAT(job_.record.unconfirmed_checkpoints(), ::testing::IsEmpty());
}

TEST_F(JobControllerTest, AJobWhoseCheckpointsWereNeverWrittenBeginsAgainAtOnce) {
  Start(1);
  Publish(10);
  Publish(20);
  Exit(0, 9);
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w0");
  Do([&](JobController& controller) { controller.Place(members); });
  const v1::StartRank start = effects_.when_durable.at(0).message.start_rank();
  EXPECT_TRUE(start.resume_or_begin());
  ASSERT_EQ(start.resume_before_size(), 1);
  Do([&](JobController& controller) { controller.OnJoined(0, {}); });
  EXPECT_FALSE(job_.job().has_checkpoint());
  EXPECT_THAT(Listed(), ElementsAre());
  EXPECT_THAT(effects_.events[1].message(), HasSubstr("where the job began"));
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobControllerTest, ACheckpointThatIsKnownToBeThereHasNoOther) {
  Start(1);
  Save(10);
  Save(20);
  Exit(0, 9);
  std::vector<records::MemberRecord> members(1);
  Do([&](JobController& controller) { controller.Place(members); });
  const v1::StartRank start = effects_.when_durable.at(0).message.start_rank();
  EXPECT_EQ(start.resume().step(), 20);
  EXPECT_EQ(start.resume_before_size(), 0);
  EXPECT_FALSE(start.resume_or_begin());
}

// Manifests are written in the order of steps: a later one vouches for those before it.
TEST_F(JobControllerTest, ABacklogThatIsWrittenLeavesTheNewestOnes) {
  Start(1);
  Save(10);
  for (const int step : {20, 30, 40}) Publish(step);
  Written(20);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 30, 40));
  Written(40);
  EXPECT_THAT(Listed(), ElementsAre(30, 40));
}

TEST_F(JobControllerTest, ACheckpointThatWasLoadedHasBeenWritten) {
  Start(1);
  for (const int step : {10, 20, 30}) Publish(step);
  Exit(0, 9);
  Start(1);
  v1::RankRunning running;
  running.set_first_step(31);
  Do([&](JobController& controller) { controller.OnRunning(0, running); });
  EXPECT_THAT(Listed(), ElementsAre(20, 30));
}

// As rank 0 decides on disk: by the set that bestBy names, else by the first where there is no
// validation data.
TEST_F(JobControllerTest, TheBestCheckpointIsByTheSetThatItIsToldBy) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto listed = [&](const std::string& best_by, bool validated) {
    job_ = JobRuntime();
    SetUp();
    v1::DataSpec& data = *spec().mutable_data();
    for (const char* name : {"code", "prose"}) data.add_evaluation_sets()->set_name(name);
    data.set_validation_fraction(validated ? 0.1 : 0);
    spec().mutable_checkpoint()->set_keep_last(1);
    spec().mutable_checkpoint()->set_keep_best(true);
    spec().mutable_checkpoint()->set_best_by(best_by);
    Start(1);
    SaveEvaluated(10, 1.0, {{"code", 2.0}, {"prose", nan}});
    SaveEvaluated(20, 2.0, {{"code", 1.0}, {"prose", 2.0}});
    SaveEvaluated(30, 3.0, {{"code", 3.0}, {"prose", 1.0}});
    SaveEvaluated(40, 4.0, {{"code", 4.0}, {"prose", 4.0}});
    return Listed();
  };
  EXPECT_THAT(listed("", true), ElementsAre(10, 40));
  EXPECT_THAT(listed("", false), ElementsAre(20, 40));
  EXPECT_THAT(listed("code", true), ElementsAre(20, 40));
  EXPECT_THAT(listed("prose", true), ElementsAre(30, 40));
}

// The verdict on an older proposal was lost, so that it is made again: the newest stays the newest.
TEST_F(JobControllerTest, AProposalThatIsMadeAgainIsNotTheNewest) {
  Start(1);
  Publish(10);
  Publish(20);
  Publish(10);
  EXPECT_EQ(job_.job().checkpoint().step(), 20);
  EXPECT_THAT(Listed(), ElementsAre(10, 20));
}

// The job has never had a checkpoint, and goes on as if none had been proposed.
TEST_F(JobControllerTest, AnOnlyCheckpointThatWasNeverWrittenIsNoReasonToFail) {
  Start(1);
  Publish(10);
  Exit(0, 9);
  FailToLoad("it has no manifest.json", true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_FALSE(job_.job().has_checkpoint());
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(10));
  EXPECT_THAT(job_.job().reason(), HasSubstr("restart from the beginning"));
  EXPECT_EQ(job_.job().restarts().user(), 0);
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
  Do([&](JobController& controller) { controller.OnExited(0, exited); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(20));
}

// Unlike a shard's, a manifest's damage shows before the epoch has agreed on anything.
TEST_F(JobControllerTest, ADamagedManifestIsGivenUpBeforeTheCommit) {
  Start(1);
  Save(10);
  Save(20);
  Exit(0, 9);
  FailToLoad("/c/step-00000020.e00001/manifest.json: the checksum is of other bytes", true);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(20));
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
  Save(10);
  Save(20);
  Exit(0, 9);
  FailToLoad("/c/step-00000020.e00001 is no checkpoint: it has no manifest.json", false);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job_.job().checkpoint().step(), 20);
  EXPECT_THAT(job_.job().reason(), ::testing::Not(HasSubstr("is left")));
}

TEST_F(JobControllerTest, ADamagedNewestCheckpointIsGivenUpOnceItsEpochAgreedOnAllElse) {
  Start(1);
  Save(10);
  Save(20);
  Exit(0, 9);
  Start(1);  // joined and committed: step 20 is loaded now
  v1::RankFailure failure;
  failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
  failure.set_message("rank-00000.safetensors is damaged");
  Do([&](JobController& controller) { controller.OnFailure(0, failure); });
  v1::RankExited exited;
  exited.set_exit_code(11);
  Do([&](JobController& controller) { controller.OnExited(0, exited); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().checkpoint().step(), 10);
  EXPECT_EQ(job_.job().restarts().user(), 0);
  EXPECT_THAT(effects_.dropped_checkpoints, ElementsAre(20));
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
  Do([&](JobController& controller) { controller.OnExited(0, exited); });
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
  Do([&](JobController& controller) { controller.OnExited(0, exited); });
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job_.job().progress().loss(), 2.5);
  EXPECT_EQ(job_.job().reason(), "finished after step 100");
}

// As retention on disk: what a job that went wrong goes back to stays.
TEST_F(JobControllerTest, TheNewestCheckpointWithAFiniteLossStaysListed) {
  spec().mutable_checkpoint()->set_keep_last(1);
  Start(1);
  Save(10, 2.0);
  Save(20, 1.5);
  Save(30, std::numeric_limits<double>::quiet_NaN());
  Save(40);
  EXPECT_THAT(Listed(), ElementsAre(20, 40));
  Save(50, 1.0);
  EXPECT_THAT(Listed(), ElementsAre(50));
}

TEST_F(JobControllerTest, OnlyTheNewestCheckpointsAreListed) {
  spec().mutable_checkpoint()->set_keep_last(2);
  spec().mutable_checkpoint()->set_keep_every_steps(30);
  Start(1);
  for (const int step : {10, 20, 30, 40, 50, 60}) Save(step);
  EXPECT_THAT(Listed(), ElementsAre(30, 50, 60));
}

}  // namespace
}  // namespace fsdp::coordinator

// Ranks and their checkpoints: resume, verdicts on manifests, retention, damage.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

TEST_F(TrainerTest, ResumeIsBitExactOnTheSameWorldSize) {
  for (const int world : {1, 3}) {
    std::filesystem::remove_all(directory_ + "/checkpoints");
    Epoch whole(Job(8), world);
    whole.Run();
    ASSERT_TRUE(whole.results[0].ok()) << whole.results[0].status();

    Epoch first(JobWithCheckpoints(8), world);
    // Only one rank hears of it; all must stop at the same step.
    first.links.back()->StopAfter(3, v1::STOP_MODE_CHECKPOINT);
    first.Run();
    ASSERT_TRUE(first.results[0].ok()) << first.results[0].status();
    EXPECT_FALSE(first.done().finished());
    const std::int64_t stopped = first.done().last_step();
    EXPECT_GE(stopped, 3);
    EXPECT_LT(stopped, 8);
    EXPECT_EQ(first.done().checkpoint_step(), stopped);

    Epoch second(JobWithCheckpoints(8), world);
    second.number = 2;
    second.resume = Newest()->path;
    second.Run();
    ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
    std::vector<double> losses = first.links[0]->Losses();
    for (const double loss : second.links[0]->Losses()) losses.push_back(loss);
    EXPECT_EQ(losses, whole.links[0]->Losses()) << "world " << world;
    EXPECT_EQ(second.done().result().validation_loss(), whole.done().result().validation_loss());
  }
}

TEST_F(TrainerTest, ResumeOnAnotherWorldSizeGoesOnWithTheSameLoss) {
  Epoch first(JobWithCheckpoints(4), 3);
  first.Run();
  Epoch whole(Job(8), 1);
  whole.Run();
  for (const int world : {1, 2, 4}) {
    v1::TrainingJob job = JobWithCheckpoints(8);
    job.mutable_spec()->mutable_checkpoint()->set_keep_last(0);  // the next round starts there too
    Epoch second(job, world);
    second.number = 1 + world;
    second.resume = directory_ + "/checkpoints/test/step-00000004.e00001";
    second.Run();
    ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
    const std::vector<double> losses = second.links[0]->Losses();
    ASSERT_EQ(losses.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      const double expected = whole.links[0]->Losses()[4 + i];
      // Sums in another order: fp32 rounding over a few steps (the issue allows 1e-5 over 10).
      EXPECT_NEAR(losses[i], expected, 1e-5 * expected) << "world " << world << ", step " << 5 + i;
    }
  }
}

// A crash between the last checkpoint and the end of the job.
TEST_F(TrainerTest, ResumeAtTheEndGivesTheSameResult) {
  Epoch first(JobWithCheckpoints(3), 2);
  first.Run();
  Epoch second(JobWithCheckpoints(3), 2);
  second.number = 2;
  second.resume = Newest()->path;
  second.Run();
  ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
  EXPECT_TRUE(second.done().finished());
  EXPECT_EQ(second.done().result().train_loss(), first.done().result().train_loss());
  EXPECT_EQ(second.done().result().validation_loss(), first.done().result().validation_loss());
  EXPECT_EQ(second.done().checkpoint_step(), 3);
  EXPECT_TRUE(second.links[0]->Steps().empty());
}

TEST_F(TrainerTest, AJobsFolderIsNoCheckpointButNamesItsNewest) {
  Epoch first(JobWithCheckpoints(4), 2);
  first.Run();
  const std::string newest = Newest()->path;
  v1::TrainingJob job = Job(8);
  job.mutable_spec()->mutable_checkpoint()->set_resume_from(
      std::filesystem::path(newest).parent_path().string());
  Epoch second(job, 2);
  second.Run();
  const v1::RankFailure failure = second.links[0]->Failure();
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_THAT(failure.message(), HasSubstr("the newest is " + newest + ": name that one"));
}

// Somebody starts from a checkpoint and forgets to raise the limit: no step, no made-up loss, and
// the job says why.
TEST_F(TrainerTest, ACheckpointBeyondTheLimitLeavesNothingToTrain) {
  Epoch first(JobWithCheckpoints(4), 2);
  first.Run();
  v1::TrainingJob shorter = Job(2);
  shorter.mutable_spec()->mutable_checkpoint()->set_resume_from(Newest()->path);
  Epoch second(shorter, 2);
  second.Run();
  ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
  EXPECT_TRUE(second.done().finished());
  EXPECT_EQ(second.done().last_step(), 4);
  EXPECT_EQ(second.done().result().steps(), 4);
  EXPECT_EQ(second.done().result().train_loss(), first.done().result().train_loss());
  EXPECT_TRUE(second.links[0]->Steps().empty());
  EXPECT_TRUE(second.printed.empty());
  std::vector<std::string> notices;
  for (const auto& message : second.links[0]->Messages()) {
    if (message.has_notice()) notices.push_back(message.notice().message());
  }
  EXPECT_THAT(notices,
              testing::ElementsAre(testing::AllOf(
                  testing::HasSubstr("nothing left to train"),
                  testing::HasSubstr("is at step 4, and limits.maxSteps 2 ends the job"))));
}

TEST_F(TrainerTest, ARefusedManifestIsNeverPublished) {
  Epoch epoch(JobWithCheckpoints(2));
  epoch.links[0]->SetVerdicts(FakeLink::Verdicts::kRefuse);
  epoch.Run();
  EXPECT_EQ(CauseOf(epoch.results[0].status()), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_EQ(ExitOf(epoch.results[0].status()), TrainerExit::kCheckpoint);
  EXPECT_THAT(epoch.links[0]->Failure().message(), HasSubstr("epoch 1 is over"));
  EXPECT_FALSE(Newest().ok());
}

// The control plane acts on the first report and kills the other ranks: each report must do.
TEST_F(TrainerTest, EveryRankTellsWhyOneCouldNotWriteItsShard) {
  const std::string path = Root() + "/step-00000002.e00001/rank-00001.safetensors";
  std::filesystem::create_directories(path + "/in the way");
  Epoch epoch(JobWithCheckpoints(2), 3);
  epoch.Run();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const v1::RankFailure failure = epoch.links[rank]->Failure();
    EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_CHECKPOINT) << failure.message();
    EXPECT_THAT(failure.message(), testing::AllOf(HasSubstr("checkpoint.dir: "), HasSubstr(path),
                                                  HasSubstr("Is a directory")));
    EXPECT_EQ(failure.has_peer(), rank != 1);
    EXPECT_EQ(failure.peer(), rank == 1 ? 0 : 1);
  }
  EXPECT_FALSE(Newest().ok());
}

TEST_F(TrainerTest, AVerdictThatComesLateDoesNotStopTraining) {
  v1::TrainingJob job = JobWithCheckpoints(6);
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  Epoch epoch(job);
  epoch.links[0]->SetVerdicts(FakeLink::Verdicts::kAdmitWhenDone);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_EQ(epoch.links[0]->Steps().size(), 6U);
  EXPECT_EQ(Newest()->step, 6);
  // A coordinator that is silent holds one save up, not each.
  EXPECT_EQ(epoch.links[0]->unanswered_waits(), 1);
  // The coordinator hears of each as soon as it is on disk.
  std::vector<std::int64_t> published;
  for (const auto& message : epoch.links[0]->Messages()) {
    if (message.has_published()) published.push_back(message.published().step());
  }
  EXPECT_THAT(published, testing::ElementsAre(2, 4, 6));
}

TEST_F(TrainerTest, OldCheckpointsGo) {
  v1::TrainingJob job = JobWithCheckpoints(6);
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(1);
  job.mutable_spec()->mutable_checkpoint()->set_keep_last(2);
  Epoch epoch(job, 2);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  const auto entries = ListCheckpoints(BlobStore::Posix(), Root()).value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].step, 5);
  EXPECT_EQ(entries[1].step, 6);
}

// The manifest and the proposal carry what was evaluated last, and retention goes by the set that
// bestBy names: on other text than the trained one a loss rises where that on the same falls.
TEST_F(TrainerTest, TheBestCheckpointBySetStays) {
  v1::TrainingJob job = JobWithCheckpoints(8);
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.clear_validation_fraction();
  std::ofstream(directory_ + "/other") << std::string(400, 'x');
  data.add_evaluation_sets()->set_name("other");
  data.mutable_evaluation_sets(0)->set_path(directory_ + "/other");
  data.add_evaluation_sets()->set_name("same");
  data.mutable_evaluation_sets(1)->set_path(data.path());
  job.mutable_spec()->mutable_train()->set_evaluate_every_steps(2);
  v1::CheckpointSpec& checkpoint = *job.mutable_spec()->mutable_checkpoint();
  checkpoint.set_every_steps(2);
  checkpoint.set_keep_last(1);
  checkpoint.set_keep_best(true);
  for (const std::string set : {"other", "same"}) {
    SCOPED_TRACE(set);
    checkpoint.set_best_by(set);
    Epoch epoch(job, 2);
    epoch.Run();
    ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    // What was told at each step, as the proposals have it.
    std::map<std::int64_t, double> told;
    for (const v1::StepReport& step : epoch.links[0]->Steps()) {
      for (const v1::EvaluationLoss& loss : step.metrics().evaluations()) {
        if (loss.name() == set) told[step.metrics().step()] = loss.loss();
      }
    }
    ASSERT_EQ(told.size(), 4U);
    const auto best = std::min_element(
        told.begin(), told.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const v1::TrainerToDaemon& message : epoch.links[0]->Messages()) {
      if (!message.has_manifest()) continue;
      const v1::CheckpointInfo& info = message.manifest().checkpoint();
      ASSERT_EQ(info.evaluations_size(), 2);
      EXPECT_EQ(info.evaluations(set == "other" ? 0 : 1).loss(), told[info.step()]);
    }
    const auto entries = ListCheckpoints(BlobStore::Posix(), Root());
    ASSERT_TRUE(entries.ok());
    std::set<std::int64_t> kept;
    for (const CatalogEntry& entry : *entries) {
      kept.insert(entry.step);
      EXPECT_EQ(entry.manifest->evaluation_losses.at(set), told[entry.step]);
    }
    // The newest of a finite loss is the newest here.
    EXPECT_EQ(kept, (std::set<std::int64_t>{best->first, 8}));
    std::filesystem::remove_all(directory_ + "/checkpoints");
  }
}

// The coordinator went back to step 2: what was saved after that is no reason to remove what is
// saved now.
TEST_F(TrainerTest, CheckpointsThatWereGivenUpDoNotPushOutNewOnes) {
  v1::TrainingJob job = JobWithCheckpoints(12);
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  job.mutable_spec()->mutable_checkpoint()->set_keep_last(0);
  Epoch first(job);
  first.Run();
  job.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
  Epoch second(job);
  second.number = 2;
  second.resume = Root() + "/step-00000002.e00001";
  second.links[0]->StopAfter(3, v1::STOP_MODE_CHECKPOINT);
  second.Run();
  ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
  ASSERT_LT(second.done().checkpoint_step(), 12);
  const auto entries = ListCheckpoints(BlobStore::Posix(), Root()).value();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].step, second.done().checkpoint_step());
  EXPECT_EQ(entries[0].epoch, 2);
}

// The coordinator was away, and rank 0 died before it heard that it may write manifests.
TEST_F(TrainerTest, FoldersWithoutAManifestArePassedOver) {
  v1::TrainingJob job = JobWithCheckpoints(8);
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  job.mutable_spec()->mutable_checkpoint()->set_keep_last(0);
  Epoch first(job, 2);
  first.Run();
  const auto folder = [&](int step) {
    return absl::StrCat(Root(), "/step-0000000", step, ".e00001");
  };
  const auto remove_manifest = [&](int step) {
    ASSERT_TRUE(std::filesystem::remove(folder(step) + "/manifest.json"));
  };
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(100);
  const auto first_step = [&](std::int64_t epoch) {
    Epoch next(job, 2);
    next.number = epoch;
    next.resume = folder(8);
    next.resume_before = {folder(6), folder(4)};
    next.resume_or_begin = true;
    for (const auto& link : next.links) link->StopAfter(1, v1::STOP_MODE_DRAIN);
    next.Run();
    for (const auto& result : next.results) EXPECT_TRUE(result.ok()) << result.status();
    std::int64_t step = 0;
    for (const auto& message : next.links[0]->Messages()) {
      if (message.has_running()) step = message.running().first_step();
    }
    return step;
  };
  remove_manifest(8);
  remove_manifest(6);
  EXPECT_EQ(first_step(2), 5);
  remove_manifest(4);
  EXPECT_EQ(first_step(3), 1);
  // One that is there and damaged is not passed over in silence.
  std::ofstream(folder(8) + "/manifest.json") << "{";
  Epoch damaged(job);
  damaged.number = 4;
  damaged.resume = folder(8);
  damaged.resume_before = {folder(6)};
  damaged.Run();
  EXPECT_TRUE(damaged.links[0]->Failure().checkpoint_damaged());
}

TEST_F(TrainerTest, ADamagedCheckpointIsACheckpointFailureThatNamesTheFile) {
  Epoch first(JobWithCheckpoints(2), 2);
  first.Run();
  ASSERT_TRUE(first.results[0].ok()) << first.results[0].status();
  const std::string path = Newest()->path + "/rank-00001.safetensors";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  }
  Epoch second(JobWithCheckpoints(4), 2);
  second.number = 2;
  second.resume = Newest()->path;
  second.Run();
  int named = 0;
  int damaged = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(second.results[rank].ok());
    if (absl::StrContains(second.links[rank]->Failure().message(), "rank-00001.safetensors")) {
      EXPECT_EQ(second.links[rank]->Failure().cause(), v1::FAILURE_CAUSE_CHECKPOINT);
      damaged += second.links[rank]->Failure().checkpoint_damaged() ? 1 : 0;
      ++named;
    }
  }
  EXPECT_GT(named, 0);
  EXPECT_EQ(damaged, named);
}

// The control plane goes back to an older checkpoint for these, and only for these.
TEST_F(TrainerTest, ADamagedCheckpointIsToldApartFromAFolderThatIsNotThere) {
  Epoch first(JobWithCheckpoints(2));
  first.Run();
  ASSERT_TRUE(first.results[0].ok()) << first.results[0].status();
  const std::string directory = Newest()->path;
  const std::string path = directory + "/manifest.json";
  std::ostringstream good;
  good << std::ifstream(path).rdbuf();
  std::string other_tokens = good.str();
  other_tokens.replace(other_tokens.find("\"tokens\": ") + 10, 1, "9");
  ASSERT_NE(other_tokens, good.str());

  const auto resume = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    Epoch second(JobWithCheckpoints(4));
    second.number = 2;
    second.resume = directory;
    second.Run();
    return second.links[0]->Failure();
  };
  for (const std::string& text : {std::string(), good.str().substr(0, 100), good.str() + "x",
                                  std::string(300, '\xff'), other_tokens}) {
    const v1::RankFailure failure = resume(text);
    EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_CHECKPOINT) << failure.message();
    EXPECT_TRUE(failure.checkpoint_damaged()) << failure.message();
    EXPECT_THAT(failure.message(), HasSubstr(path));
  }
  EXPECT_EQ(resume(good.str()).cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  // Rank 0 died between the manifest's admission and its rename: shards alone.
  const auto start = [&](const v1::TrainingJob& job, const std::string& assigned) {
    Epoch epoch(job);
    epoch.number = 3;
    epoch.resume = assigned;
    epoch.Run();
    return epoch.links[0]->Failure();
  };
  std::filesystem::remove(path);
  const v1::RankFailure unfinished = start(JobWithCheckpoints(4), directory);
  EXPECT_EQ(unfinished.cause(), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_TRUE(unfinished.checkpoint_damaged());
  EXPECT_THAT(unfinished.message(), HasSubstr(directory + " is no checkpoint: it has no manifest"));
  // A folder that the user names was admitted by nobody.
  v1::TrainingJob mistaken = JobWithCheckpoints(4);
  mistaken.mutable_spec()->mutable_checkpoint()->set_resume_from(directory);
  const v1::RankFailure named = start(mistaken, "");
  EXPECT_EQ(named.cause(), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_FALSE(named.checkpoint_damaged());
  // It may only not be mounted here.
  std::filesystem::remove_all(directory);
  const v1::RankFailure absent = start(JobWithCheckpoints(4), directory);
  EXPECT_EQ(absent.cause(), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_FALSE(absent.checkpoint_damaged());
}

TEST_F(TrainerTest, ADirectoryTokenIsTheFoldersAndNobodyElses) {
  std::filesystem::create_directories(directory_ + "/a");
  std::filesystem::create_directories(directory_ + "/b");
  const std::string token = DirectoryToken(directory_ + "/a").value();
  EXPECT_EQ(DirectoryToken(directory_ + "/a/../a").value(), token);
  EXPECT_NE(DirectoryToken(directory_ + "/b").value(), token);
  EXPECT_FALSE(DirectoryToken(directory_ + "/none").ok());
}

}  // namespace
}  // namespace fsdp

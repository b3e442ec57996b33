// What a rank does and tells: the order of its story, stops, failures, limits.

#include "worker/train/trainer.h"

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/trainer_report.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

// They are compared with the validation loss, so both are of the validation split.
TEST_F(TrainerTest, EntropiesAreThoseOfTheSplitThatIsValidatedOn) {
  v1::TrainingJob job = Job(1);
  std::string text(4000, 'a');
  for (std::size_t i = 3200; i < text.size(); ++i) text[i] = i % 2 == 0 ? 'x' : 'y';
  const std::string path = directory_ + "/two_halves";
  std::ofstream(path) << text;
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.set_path(path);
  data.set_validation_fraction(0.2);
  Epoch validated(job, 1);
  validated.Run();
  const v1::RankJoined of_validation = validated.links[0]->Messages()[0].joined();
  EXPECT_NEAR(of_validation.unigram_entropy(), std::log(2.0), 1e-9);
  EXPECT_NEAR(of_validation.bigram_conditional_entropy(), 0, 1e-9);
  EXPECT_EQ(validated.done().result().unigram_entropy(), of_validation.unigram_entropy());
  EXPECT_EQ(validated.done().result().bigram_conditional_entropy(),
            of_validation.bigram_conditional_entropy());

  // Without one they are those of all that is trained on: a fifth of it is x and y.
  data.set_validation_fraction(0);
  Epoch trained(job, 1);
  trained.Run();
  EXPECT_NEAR(trained.links[0]->Messages()[0].joined().unigram_entropy(),
              -(0.8 * std::log(0.8) + 0.2 * std::log(0.1)), 1e-3);
}

TEST_F(TrainerTest, ARankTellsItsStoryInOrder) {
  v1::TrainingJob job = JobWithCheckpoints(6);
  job.mutable_spec()->mutable_train()->set_evaluate_every_steps(3);
  Epoch epoch(job, 2);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  ASSERT_TRUE(epoch.results[1].ok()) << epoch.results[1].status();
  EXPECT_EQ(epoch.links[0]->Order(),
            "joined ceilings running step shard_written manifest published done");
  EXPECT_EQ(epoch.links[1]->Order(), "joined ceilings running step shard_written done");
  EXPECT_GT(epoch.links[0]->pulses(), 0);

  const v1::RankJoined joined = epoch.links[0]->Messages()[0].joined();
  EXPECT_EQ(joined.total_steps(), 6);
  EXPECT_GT(joined.unigram_entropy(), joined.bigram_conditional_entropy());
  EXPECT_EQ(joined.plan_hash(), epoch.links[1]->Messages()[0].joined().plan_hash());
  EXPECT_EQ(joined.data_fingerprint(), epoch.links[1]->Messages()[0].joined().data_fingerprint());
  EXPECT_EQ(joined.checkpoint_dir_token(),
            epoch.links[1]->Messages()[0].joined().checkpoint_dir_token());
  EXPECT_FALSE(joined.checkpoint_dir_token().empty());

  const std::vector<v1::StepReport> steps = epoch.links[0]->Steps();
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(epoch.links[0]->Losses(), epoch.links[1]->Losses());
  EXPECT_LT(steps[5].metrics().loss(), steps[0].metrics().loss());
  EXPECT_FALSE(steps[1].metrics().has_validation_loss());
  EXPECT_TRUE(steps[2].metrics().has_validation_loss());
  EXPECT_TRUE(steps[5].final());
  EXPECT_EQ(steps[0].metrics().tokens(), 5 * 16);
  EXPECT_EQ(steps[0].metrics().memory_peak_bytes_by_rank_size(), 2);
  EXPECT_EQ(steps[5].metrics().memory_peak_bytes(), joined.memory_planned_bytes());
  EXPECT_FALSE(steps[0].families().empty());

  const v1::TrainerDone& done = epoch.done();
  EXPECT_TRUE(done.finished());
  EXPECT_EQ(done.checkpoint_step(), 6);
  EXPECT_EQ(done.result().validation_loss(), steps[5].metrics().validation_loss());
  EXPECT_EQ(done.result().tokens(), 6 * 5 * 16);
  EXPECT_FALSE(epoch.done(1).has_result());
  EXPECT_EQ(epoch.printed[0], "Step | Loss | Peak memory per rank");
  EXPECT_THAT(epoch.printed[1], testing::MatchesRegex("1 \\| 5\\.[0-9]+ \\| [0-9.]+ MiB"));
}

// Phases are what a step is made of; what they leave over is bounded by the issue (3 %), here by
// being a part at all.
TEST_F(TrainerTest, PhasesSumToTheStep) {
  Epoch epoch(Job(4));
  epoch.Run();
  for (const v1::StepReport& step : epoch.links[0]->Steps()) {
    const v1::StepPhases& p = step.metrics().phases();
    const double sum = p.data_seconds() + p.compute_seconds() + p.exposed_gather_seconds() +
                       p.exposed_scatter_seconds() + p.optimizer_seconds() +
                       p.checkpoint_seconds() + p.evaluate_seconds() + p.other_seconds() +
                       p.unattributed_seconds();
    EXPECT_NEAR(sum, step.metrics().step_seconds(), 1e-3 + 0.03 * step.metrics().step_seconds());
    EXPECT_GT(p.data_seconds(), 0) << "reading the batch is a phase";
  }
}

TEST_F(TrainerTest, DrainStopsWithoutACheckpoint) {
  Epoch epoch(JobWithCheckpoints(1000), 2);
  epoch.links[0]->StopAfter(2, v1::STOP_MODE_DRAIN);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_FALSE(epoch.done().finished());
  EXPECT_EQ(epoch.done().checkpoint_step(), 0);
  EXPECT_EQ(epoch.done(0).last_step(), epoch.done(1).last_step());
  EXPECT_FALSE(Newest().ok());
}

TEST_F(TrainerTest, ADeadPeerIsNamedByTheSurvivors) {
  Epoch epoch(Job(100), 3);
  epoch.gather_faults[2].DieAt(20);
  epoch.Run();
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(ExitOf(epoch.results[rank].status()), TrainerExit::kCommunication)
        << epoch.results[rank].status();
    const v1::RankFailure failure = epoch.links[rank]->Failure();
    EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_COMMUNICATION);
    EXPECT_TRUE(failure.has_peer());
    EXPECT_THAT(failure.collective(), testing::MatchesRegex("[a-z_]+ .*, sequence [0-9]+"));
    EXPECT_NE(failure.peer(), static_cast<int>(rank));
  }
}

TEST_F(TrainerTest, MissingDataIsADataFailureBeforeAnybodyJoins) {
  v1::TrainingJob job = Job(2);
  job.mutable_spec()->mutable_data()->set_path(directory_ + "/none");
  Epoch epoch(job);
  epoch.Run();
  EXPECT_EQ(ExitOf(epoch.results[0].status()), TrainerExit::kData);
  EXPECT_EQ(epoch.links[0]->Order(), "failure");
  EXPECT_EQ(epoch.links[0]->Failure().cause(), v1::FAILURE_CAUSE_DATA);
  EXPECT_THAT(epoch.links[0]->Failure().message(), HasSubstr("/none"));
}

// Whatever the format, the source and where it is damaged.
TEST_F(TrainerTest, DamagedDataIsADataFailureBeforeAnybodyJoins) {
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(absl::StrCat(directory_, "/", name), std::ios::binary) << bytes;
    return absl::StrCat(directory_, "/", name);
  };
  const std::string ids(200, '\1');
  const std::string good = write("good.bin", std::string(4000, '\1'));
  const std::vector<std::pair<std::string, std::string>> damaged = {
      {write("odd.bin", ids + "x"), "is no multiple of the 2 of a token"},
      {write("short.bin", ids.substr(0, 30)), "has 15 tokens"},
      {write("empty.bin", ""), "is empty"},
      {write("foreign.bin", ids + std::string("\x00\x7f", 2) + ids), "token id 32512"},
      {write("shard.bin", std::string("\x88\xd8\x34\x01\x01\0\0\0\xff\0\0\0", 12) + ids),
       "fewer than its header's 1024"},
      {write("pair.idx", "MMIDIDX"), "has no " + directory_ + "/pair.bin beside it"},
  };
  for (const auto& [path, text] : damaged) {
    for (const bool mixed : {false, true}) {
      v1::TrainingJob job = Job(2);
      job.mutable_spec()->mutable_model()->set_vocab_size(1000);
      v1::DataSpec& data = *job.mutable_spec()->mutable_data();
      data.set_source(v1::DATA_SOURCE_TOKENS);
      data.set_validation_fraction(0);
      data.set_path(mixed ? "" : path);
      for (const std::string& part : {good, path}) {
        if (!mixed) continue;
        data.add_mixture()->set_path(part);
        data.mutable_mixture(data.mixture_size() - 1)->set_weight(1);
      }
      Epoch epoch(job, 2);
      epoch.Run();
      for (std::size_t rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(ExitOf(epoch.results[rank].status()), TrainerExit::kData);
        EXPECT_EQ(epoch.links[rank]->Order(), "failure");
        EXPECT_EQ(epoch.links[rank]->Failure().cause(), v1::FAILURE_CAUSE_DATA);
        EXPECT_THAT(epoch.links[rank]->Failure().message(), HasSubstr(text));
        EXPECT_THAT(epoch.links[rank]->Failure().message(),
                    HasSubstr(mixed ? "data.mixture[1].path: " : "data.path: "));
      }
    }
  }
}

// Losses are equal only where all draw the same sequences in the same order.
TEST_F(TrainerTest, AMixtureIsTheSameOnEveryWorldSize) {
  std::vector<double> of_one;
  for (const int world : {1, 2, 3, 4, 7}) {
    v1::TrainingJob job = Job(6);
    Mix(&job);
    Epoch epoch(job, world);
    epoch.Run();
    ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    const std::vector<double> losses = epoch.links[0]->Losses();
    ASSERT_EQ(losses.size(), 6U);
    if (of_one.empty()) of_one = losses;
    // Sums in another order round differently.
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(losses[i], of_one[i], 1e-5) << world;
    const v1::JobResult& result = epoch.done().result();
    ASSERT_EQ(result.data_sources_size(), 2);
    EXPECT_EQ(result.data_sources(0).name(), "words");
    EXPECT_EQ(result.data_sources(0).sequences(), 21);  // of 30
    EXPECT_EQ(result.data_sources(0).tokens(), 21 * 16);
    EXPECT_EQ(result.data_sources(1).tokens(), 9 * 16);
    EXPECT_GT(result.data_sources(1).passes(), result.data_sources(0).passes());
    EXPECT_TRUE(result.has_validation_loss());
    for (const auto& link : epoch.links) {
      const v1::RankJoined joined = link->Messages()[0].joined();
      ASSERT_EQ(joined.data_sources_size(), 2);
      EXPECT_EQ(joined.data_sources(0).name(), "words");
      EXPECT_NE(joined.data_sources(0).fingerprint(), joined.data_sources(1).fingerprint());
      EXPECT_EQ(joined.data_bytes(),
                joined.data_sources(0).bytes() + joined.data_sources(1).bytes());
    }
  }
}

// Forty files of 10 to 15 bytes.
void WriteDocuments(const std::string& folder) {
  std::filesystem::create_directory(folder);
  for (int i = 0; i < 40; ++i) {
    std::ofstream(absl::StrCat(folder, "/", i)) << "document " << i * 7919;
  }
}

// Attention within documents, in training and evaluation, on any number of ranks.
TEST_F(TrainerTest, AttentionIsResetAtDocuments) {
  WriteDocuments(directory_ + "/documents");
  const auto job = [&](bool reset) {
    v1::TrainingJob job = Job(4);
    v1::DataSpec& data = *job.mutable_spec()->mutable_data();
    data.set_path(directory_ + "/documents");
    data.set_validation_fraction(0.3);
    data.set_reset_attention(reset);
    job.mutable_spec()->mutable_train()->set_evaluate_every_steps(2);
    return job;
  };
  const auto losses = [&](bool reset, int world) {
    Epoch epoch(job(reset), world);
    epoch.Run();
    EXPECT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    std::vector<double> losses = epoch.links[0]->Losses();
    losses.push_back(epoch.done().result().validation_loss());
    return losses;
  };
  const std::vector<double> of_one = losses(true, 1);
  const std::vector<double> of_three = losses(true, 3);
  const std::vector<double> whole = losses(false, 1);
  ASSERT_EQ(of_one.size(), 5U);
  for (std::size_t i = 0; i < of_one.size(); ++i) {
    EXPECT_NEAR(of_three[i], of_one[i], 1e-5);
    EXPECT_GT(std::abs(whole[i] - of_one[i]), 1e-6);
  }
}

// Losses are of the tokens that are left, on any number of ranks.
TEST_F(TrainerTest, MaskedDocumentEndsAreLeftOutOfTheLoss) {
  WriteDocuments(directory_ + "/documents");
  std::vector<double> of_one;
  for (const int world : {1, 3}) {
    v1::TrainingJob job = Job(4);
    v1::DataSpec& data = *job.mutable_spec()->mutable_data();
    data.set_path(directory_ + "/documents");
    data.set_mask_document_ends(true);
    Epoch epoch(job, world);
    epoch.Run();
    ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    const std::vector<double> losses = epoch.links[0]->Losses();
    if (of_one.empty()) of_one = losses;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[i], of_one[i], 1e-5) << world;
    // Documents have 10 to 15 bytes, so each of the 20 sequences of 16 targets has one or two ends.
    EXPECT_GE(epoch.done().result().tokens(), 20 * 14);
    EXPECT_LE(epoch.done().result().tokens(), 20 * 15);
  }
  v1::TrainingJob whole = Job(4);
  whole.mutable_spec()->mutable_data()->set_path(directory_ + "/documents");
  Epoch epoch(whole);
  epoch.Run();
  EXPECT_EQ(epoch.done().result().tokens(), 20 * 16);
  EXPECT_NE(epoch.links[0]->Losses(), of_one);
}

TEST_F(TrainerTest, AnExplodingLossStopsTheJobInWords) {
  v1::TrainingJob job = Job(50);
  job.mutable_spec()->mutable_optimizer()->set_lr(1e30);
  Epoch epoch(job, 2);
  epoch.Run();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ExitOf(epoch.results[rank].status()), TrainerExit::kNonFinite)
        << epoch.results[rank].status();
  }
  EXPECT_THAT(epoch.links[0]->Failure().message(), HasSubstr("NaN or Inf"));
  EXPECT_THAT(epoch.links[0]->Failure().message(), testing::Not(HasSubstr("-nan")));
  EXPECT_EQ(TableRow(5, -std::nan(""), 1 << 20), "5 | nan | 1.0 MiB");
}

TEST_F(TrainerTest, WithSkipAnExplodingLossIsANotice) {
  v1::TrainingJob job = Job(5);
  job.mutable_spec()->mutable_optimizer()->set_lr(1e30);
  job.mutable_spec()->mutable_train()->set_on_non_finite(v1::NON_FINITE_POLICY_SKIP);
  Epoch epoch(job);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_THAT(epoch.links[0]->Order(), HasSubstr("notice"));
}

// At the steps of validation, by name, on any number of ranks.
TEST_F(TrainerTest, EvaluationSetsAreToldByName) {
  std::vector<double> of_one;
  for (const int world : {1, 2, 3}) {
    v1::TrainingJob job = Job(4);
    v1::DataSpec& data = *job.mutable_spec()->mutable_data();
    std::ofstream(directory_ + "/letters") << std::string(400, 'x');
    v1::DataMixture& letters = *data.add_evaluation_sets();
    letters.set_name("letters");
    letters.set_path(directory_ + "/letters");
    data.add_evaluation_sets()->set_path(data.path());
    job.mutable_spec()->mutable_train()->set_evaluate_every_steps(2);
    job.mutable_spec()->mutable_train()->set_evaluate_sequences(11);
    for (const bool validated : {true, false}) {
      if (!validated) data.clear_validation_fraction();
      Epoch epoch(job, world);
      epoch.Run();
      ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
      std::vector<double> losses;
      for (const v1::StepReport& step : epoch.links[0]->Steps()) {
        const v1::StepMetrics& metrics = step.metrics();
        const bool due = metrics.step() % 2 == 0;
        EXPECT_EQ(metrics.has_validation_loss(), due && validated);
        ASSERT_EQ(metrics.evaluations_size(), due ? 2 : 0);
        if (!due) continue;
        EXPECT_EQ(metrics.evaluations(0).name(), "letters");
        EXPECT_EQ(metrics.evaluations(1).name(), data.path());
        EXPECT_EQ(metrics.evaluations(0).tokens(), 11 * 16);
        for (const auto& set : metrics.evaluations()) losses.push_back(set.loss());
        EXPECT_GT(metrics.phases().evaluate_seconds(), 0);
      }
      const v1::JobResult& result = epoch.done().result();
      ASSERT_EQ(result.evaluations_size(), 2);
      EXPECT_EQ(result.evaluations(0).loss(), losses[2]);
      EXPECT_NE(losses[2], losses[3]);
      EXPECT_NE(losses[0], losses[2]);
      EXPECT_EQ(result.has_validation_loss(), validated);
      EXPECT_THAT(epoch.printed, testing::Contains(HasSubstr("step 2: loss of letters ")));
      if (!validated) continue;  // the split moves what is trained on
      if (of_one.empty()) of_one = losses;
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_one[i], 1e-5);
    }
  }
}

TEST_F(TrainerTest, AnEvaluationSetThatIsNotThereIsADataFailure) {
  v1::TrainingJob job = Job(2);
  const std::uint64_t without = [&] {
    Epoch epoch(job);
    epoch.Run();
    return epoch.links[0]->Messages()[0].joined().data_fingerprint();
  }();
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.add_evaluation_sets()->set_path(data.path());
  Epoch there(job);
  there.Run();
  EXPECT_NE(there.links[0]->Messages()[0].joined().data_fingerprint(), without);
  data.add_evaluation_sets()->set_path(directory_ + "/none");
  Epoch epoch(job, 2);
  epoch.Run();
  EXPECT_EQ(epoch.links[1]->Order(), "failure");
  EXPECT_EQ(epoch.links[1]->Failure().cause(), v1::FAILURE_CAUSE_DATA);
  EXPECT_THAT(epoch.links[1]->Failure().message(), HasSubstr("data.evaluationSets[1].path: "));
}

// However many tokens fit at once, and on however many ranks.
TEST_F(TrainerTest, ABudgetOfTokensIsAccumulatedToTheSameSteps) {
  Epoch whole(Job(4));
  whole.Run();
  const std::vector<double> want = whole.links[0]->Losses();
  for (const int world : {1, 2, 3}) {
    for (const int micro_batch : {1, 2, 5}) {
      v1::TrainingJob job = Job(4);
      job.mutable_spec()->mutable_train()->clear_global_batch();
      job.mutable_spec()->mutable_train()->set_global_batch_tokens(66);  // 5 sequences of 16
      job.mutable_spec()->mutable_train()->set_micro_batch(micro_batch);
      Epoch epoch(job, world);
      epoch.Run();
      ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
      EXPECT_EQ(epoch.done().result().tokens(), 4 * 5 * 16);
      const std::vector<double> losses = epoch.links[0]->Losses();
      ASSERT_EQ(losses.size(), want.size());
      // Sums in another order round differently.
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(losses[i], want[i], 1e-5);
    }
  }
}

TEST_F(TrainerTest, LimitsInTokensAndPassesBecomeSteps) {
  const std::unique_ptr<Device> device = CreateCpuDevice({.num_threads = 1}).value();
  v1::StartRank assignment;
  assignment.set_world_size(1);
  const auto total = [&](auto set) {
    *assignment.mutable_job() = Job(0);
    set(assignment.mutable_job()->mutable_spec()->mutable_limits());
    return SetUpRank(assignment, *device);
  };
  // 80 tokens a step.
  EXPECT_EQ(total([](v1::LimitSpec* limits) { limits->set_max_tokens(161); })->total_steps, 3);
  const auto passes = total([](v1::LimitSpec* limits) { limits->set_max_passes(0.5); });
  EXPECT_EQ(passes->total_steps,
            (passes->data.train->num_sequences() + 9) / 10);  // half of them, 5 a step
  EXPECT_EQ(total([](v1::LimitSpec*) {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// What admission found to fit must be what the rank plans.
TEST_F(TrainerTest, AutoRecomputesWhatTheDeviceAsksFor) {
  const auto device = CreateCpuDevice({.num_threads = 1});
  v1::StartRank assignment;
  *assignment.mutable_job() = Job(1);
  assignment.set_world_size(1);
  const auto roomy = SetUpRank(assignment, **device);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_EQ(roomy->plan.input.recompute, v1::RECOMPUTE_POLICY_NONE);
  assignment.set_device_memory_bytes(roomy->plan.total_bytes - 1);
  const auto tight = SetUpRank(assignment, **device);
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_NE(tight->plan.input.recompute, v1::RECOMPUTE_POLICY_NONE);
  EXPECT_LT(tight->plan.total_bytes, roomy->plan.total_bytes);
  assignment.set_device_memory_bytes(1 << 10);
  EXPECT_TRUE(absl::IsResourceExhausted(SetUpRank(assignment, **device).status()));
}

TEST(TrainerErrors, CausesSurviveAndDecideTheExitCode) {
  const absl::Status status =
      WithCause(absl::NotFoundError("no file"), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_EQ(CauseOf(WithCause(status, v1::FAILURE_CAUSE_DATA)), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_EQ(ExitOf(status), TrainerExit::kCheckpoint);
  EXPECT_TRUE(WithCause(absl::OkStatus(), v1::FAILURE_CAUSE_DATA).ok());
  EXPECT_EQ(ExitOf(absl::ResourceExhaustedError("")), TrainerExit::kOutOfMemory);
  EXPECT_EQ(ExitOf(absl::UnavailableError("")), TrainerExit::kCommunication);
  EXPECT_EQ(ExitOf(absl::InvalidArgumentError("")), TrainerExit::kBadSpec);
  EXPECT_EQ(ExitOf(absl::InternalError("")), TrainerExit::kInternal);
  EXPECT_EQ(ExitOf(absl::OkStatus()), TrainerExit::kDone);
}

TEST(TrainerReport, PrintsAtMostAboutTwoHundredRows) {
  for (const std::int64_t total : {1, 20, 199, 401, 100'000}) {
    int rows = 0;
    for (std::int64_t step = 1; step <= total; ++step) rows += IsPrinted(step, total) ? 1 : 0;
    EXPECT_LE(rows, 402) << total;
    EXPECT_TRUE(IsPrinted(1, total));
    EXPECT_TRUE(IsPrinted(total, total));
  }
}

}  // namespace
}  // namespace fsdp

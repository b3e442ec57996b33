// train.onNonFinite and train.onSpike: all ranks do the same, and a job that goes on can be
// resumed.

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"
#include "worker/train/numeric_guard.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NumericPolicyTest : public TrainerTest {
 protected:
  // Saves every second step.
  v1::TrainingJob SavingJob(std::int64_t steps, v1::NonFinitePolicy on_non_finite) {
    v1::TrainingJob job = JobWithCheckpoints(steps);
    job.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
    job.mutable_spec()->mutable_train()->set_on_non_finite(on_non_finite);
    return job;
  }
  // The 26th step's data is unlike all other.
  v1::TrainingJob SpikingJob(v1::NonFinitePolicy on_spike) {
    v1::TrainingJob job = SavingJob(30, v1::NON_FINITE_POLICY_STOP);
    const std::string path = directory_ + "/spiking";
    std::ofstream text(path);
    for (int i = 0; i < 40 * 80; ++i) {
      const bool odd = i >= 25 * 80 && i < 26 * 80;
      text << static_cast<char>(odd ? 128 + i * 7919 % 101 : 'a' + i % 4);
    }
    v1::DataSpec& data = *job.mutable_spec()->mutable_data();
    data.set_path(path);
    data.set_validation_fraction(0);
    data.set_shuffle(false);
    job.mutable_spec()->mutable_train()->set_spike_sigma(3);
    job.mutable_spec()->mutable_train()->set_on_spike(on_spike);
    return job;
  }
  static std::vector<std::int64_t> StepsOf(FakeLink& link) {
    std::vector<std::int64_t> steps;
    for (const v1::StepReport& step : link.Steps()) steps.push_back(step.metrics().step());
    return steps;
  }
  static std::vector<std::string> NoticesOf(FakeLink& link) {
    std::vector<std::string> notices;
    for (const v1::TrainerToDaemon& message : link.Messages()) {
      if (!message.has_notice()) continue;
      notices.push_back(absl::StrCat(message.notice().type(), " ", message.notice().step(), ": ",
                                     message.notice().message()));
    }
    return notices;
  }
  static void ExpectAllFailAlike(const Epoch& epoch, const std::string& text) {
    for (std::size_t rank = 0; rank < epoch.links.size(); ++rank) {
      EXPECT_EQ(ExitOf(epoch.results[rank].status()), TrainerExit::kNonFinite)
          << epoch.results[rank].status();
      EXPECT_EQ(epoch.links[rank]->Failure().cause(), v1::FAILURE_CAUSE_NON_FINITE);
      EXPECT_THAT(epoch.links[rank]->Failure().message(), HasSubstr(text));
    }
  }
};

TEST_F(NumericPolicyTest, StopNamesStepLossAndNormOnEveryRank) {
  for (const int world : {2, 3, 4}) {
    Epoch epoch(Job(8), world);
    epoch.gather_faults[world - 1].PoisonWeightsAtAgreement(3);
    epoch.Run();
    ExpectAllFailAlike(epoch,
                       "step 4: the loss or a gradient holds NaN or Inf (loss nan, gradient norm "
                       "nan); the update was not applied: lower optimizer.lr");
  }
}

TEST_F(NumericPolicyTest, SkipsInARowAreLimited) {
  for (const int world : {2, 3, 4}) {
    v1::TrainingJob job = Job(9);
    job.mutable_spec()->mutable_train()->set_on_non_finite(v1::NON_FINITE_POLICY_SKIP);
    job.mutable_spec()->mutable_train()->set_max_consecutive_skips(2);
    Epoch epoch(job, world);
    epoch.gather_faults[world - 1].PoisonWeightsAtAgreement(3);
    epoch.Run();
    ExpectAllFailAlike(epoch, "step 6: the loss");
    ExpectAllFailAlike(epoch, "train.maxConsecutiveSkips (2) is used up");
    EXPECT_THAT(NoticesOf(*epoch.links[0]), ElementsAre(HasSubstr("NON_FINITE_SKIPPED 4: step 4"),
                                                        HasSubstr("NON_FINITE_SKIPPED 5: step 5")));
  }
}

// Weights of one rank go bad after step 5. All go back to what was saved after step 4 and on with
// the sequences after the 30 that six steps took.
TEST_F(NumericPolicyTest, ARollbackTakesAllRanksToTheLastCheckpoint) {
  std::vector<double> of_two;
  for (const bool async : {false, true}) {
    for (const int world : {2, 3, 4}) {
      std::filesystem::remove_all(directory_ + "/checkpoints");
      v1::TrainingJob job = SavingJob(10, v1::NON_FINITE_POLICY_ROLLBACK);
      job.mutable_spec()->mutable_checkpoint()->set_async(async);
      Epoch epoch(job, world);
      epoch.gather_faults[world - 1].PoisonWeightsAtAgreement(5);
      epoch.Run();
      ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
      for (const auto& link : epoch.links) {
        EXPECT_THAT(StepsOf(*link), ElementsAre(1, 2, 3, 4, 5, 6, 5, 6, 7, 8, 9, 10));
        const std::vector<v1::StepReport> steps = link->Steps();
        for (std::size_t i = 0; i < steps.size(); ++i) {
          EXPECT_EQ(steps[i].metrics().rolled_back(), i == 5);
          EXPECT_EQ(steps[i].metrics().skipped(), i == 5);
          EXPECT_EQ(std::isfinite(steps[i].metrics().loss()), i != 5);
        }
      }
      EXPECT_THAT(NoticesOf(*epoch.links[0]),
                  ElementsAre(AllOf(HasSubstr("ROLLED_BACK 6: step 6: the loss"),
                                    HasSubstr("back to step 4, on with sequence 30"))));
      const std::vector<double> losses = epoch.links[0]->Losses();
      if (of_two.empty()) of_two = losses;
      for (const std::size_t i : {4U, 6U, 7U, 11U}) EXPECT_NEAR(losses[i], of_two[i], 1e-5);
      const auto newest = Newest();
      ASSERT_TRUE(newest.ok()) << newest.status();
      EXPECT_EQ(newest->step, 10);
      EXPECT_EQ(newest->manifest->position, 30 + 6 * 5);
      EXPECT_EQ(newest->manifest->tokens, 10 * 5 * 16);
      EXPECT_EQ(newest->manifest->numerics.rollbacks, 1);

      // From a checkpoint of after the rollback it goes on as it went.
      Epoch second(job, world);
      second.number = 2;
      second.resume = Root() + "/step-00000008.e00001";
      second.Run();
      ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
      EXPECT_THAT(second.links[0]->Losses(), ElementsAre(losses[10], losses[11]));
    }
  }
}

// Nobody had answered when it was saved.
TEST_F(NumericPolicyTest, ARollbackWaitsForTheManifestOfTheCheckpoint) {
  Epoch epoch(SavingJob(6, v1::NON_FINITE_POLICY_ROLLBACK), 3);
  epoch.links[0]->SetVerdicts(FakeLink::Verdicts::kAdmitWhenDone);
  epoch.gather_faults[2].PoisonWeightsAtAgreement(5);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  for (const auto& link : epoch.links) {
    EXPECT_THAT(StepsOf(*link), ElementsAre(1, 2, 3, 4, 5, 6, 5, 6));
  }
  EXPECT_EQ(Newest()->step, 6);
}

TEST_F(NumericPolicyTest, WithoutACheckpointARollbackGoesToTheBeginning) {
  Epoch epoch(SavingJob(4, v1::NON_FINITE_POLICY_ROLLBACK), 2);
  epoch.gather_faults[1].PoisonWeightsAtAgreement(1);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_THAT(StepsOf(*epoch.links[1]), ElementsAre(1, 2, 1, 2, 3, 4));
  EXPECT_THAT(NoticesOf(*epoch.links[0]), ElementsAre(HasSubstr("back to step 0")));
}

TEST_F(NumericPolicyTest, RollbacksAreLimited) {
  for (const int world : {1, 2}) {
    v1::TrainingJob job = SavingJob(50, v1::NON_FINITE_POLICY_ROLLBACK);
    job.mutable_spec()->mutable_optimizer()->set_lr(1e30);  // whatever the data
    job.mutable_spec()->mutable_train()->set_max_rollbacks(2);
    Epoch epoch(job, world);
    epoch.Run();
    ExpectAllFailAlike(epoch, "train.maxRollbacks (2) is used up");
    EXPECT_EQ(NoticesOf(*epoch.links[0]).size(), 2U);
  }
}

TEST_F(NumericPolicyTest, ASpikeIsLeftOutOnAllRanks) {
  for (const int world : {1, 2, 3, 4}) {
    std::filesystem::remove_all(directory_ + "/checkpoints");
    Epoch epoch(SpikingJob(v1::NON_FINITE_POLICY_SKIP), world);
    epoch.Run();
    ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    for (const auto& link : epoch.links) {
      for (const v1::StepReport& step : link->Steps()) {
        EXPECT_EQ(step.metrics().spike(), step.metrics().step() == 26);
        EXPECT_EQ(step.metrics().skipped(), step.metrics().step() == 26);
      }
    }
    EXPECT_THAT(NoticesOf(*epoch.links[0]), ElementsAre(HasSubstr("SPIKE_SKIPPED 26: step 26")));
    EXPECT_EQ(Newest()->manifest->numerics.num_updates, 29);

    // It goes on as it went.
    Epoch second(SpikingJob(v1::NON_FINITE_POLICY_SKIP), world);
    second.number = 2;
    second.resume = Root() + "/step-00000028.e00001";
    second.Run();
    const std::vector<double> losses = epoch.links[0]->Losses();
    EXPECT_THAT(second.links[0]->Losses(), ElementsAre(losses[28], losses[29]));
  }
}

TEST_F(NumericPolicyTest, ASpikeStopsTheJobInWords) {
  Epoch epoch(SpikingJob(v1::NON_FINITE_POLICY_STOP), 2);
  epoch.Run();
  ExpectAllFailAlike(epoch, "step 26 is a spike (loss ");
  ExpectAllFailAlike(epoch, "train.onSpike: skip or rollback");
}

// A rank dies between the rollback and the next checkpoint: the same spike is met again, and the
// same is done.
TEST_F(NumericPolicyTest, ARollbackOverASpikeIsRepeatedAfterARestart) {
  for (const int world : {1, 2, 3, 4}) {
    std::filesystem::remove_all(directory_ + "/checkpoints");
    v1::TrainingJob job = SpikingJob(v1::NON_FINITE_POLICY_ROLLBACK);
    job.mutable_spec()->mutable_checkpoint()->set_every_steps(24);
    Epoch first(job, world);
    for (const auto& link : first.links) link->StopAfter(27, v1::STOP_MODE_DRAIN);
    first.Run();
    ASSERT_TRUE(first.results[0].ok()) << first.results[0].status();
    const std::vector<double> losses = first.links[0]->Losses();
    ASSERT_EQ(Newest()->step, 24);
    Epoch second(job, world);
    second.number = 2;
    second.resume = Newest()->path;
    second.Run();
    ASSERT_TRUE(second.results[0].ok()) << second.results[0].status();
    for (const auto& link : second.links) {
      EXPECT_THAT(StepsOf(*link), ElementsAre(25, 26, 25, 26, 27, 28, 29, 30));
    }
    const std::vector<double> again = second.links[0]->Losses();
    for (std::size_t i = 24; i < losses.size(); ++i) EXPECT_EQ(again[i - 24], losses[i]) << i;
    EXPECT_EQ(Newest()->manifest->position, (26 + 6) * 5);
  }
}

StepResult Figures(double loss, double grad_norm) {
  StepResult result;
  result.step = 1;
  result.loss = loss;
  result.grad_norm = grad_norm;
  result.valid_tokens = 1;
  return result;
}

TEST(NumericGuard, BoundsAreMeanPlusDeviationsOfTheLastUpdates) {
  v1::TrainSpec spec;
  spec.set_spike_sigma(4);
  NumericGuard guard(spec);
  for (std::int64_t i = 0; i < kSpikeWarmupUpdates; ++i) {
    EXPECT_TRUE(std::isinf(guard.bounds().loss)) << i;
    guard.Judge(Figures(i % 2 == 0 ? 1 : 3, 5));
  }
  // Mean 2, deviation 1; a norm that never moved still may by 4 thousandths.
  EXPECT_NEAR(guard.bounds().loss, 2 + 4, 1e-9);
  EXPECT_NEAR(guard.bounds().grad_norm, 5 * 1.004, 1e-9);
  // They forget: after many updates elsewhere the first do not count.
  for (int i = 0; i < 2000; ++i) guard.Judge(Figures(10, 5));
  EXPECT_NEAR(guard.bounds().loss, 10 * 1.004, 1e-6);
  // Skipped ones never count.
  StepResult spike = Figures(1e6, 5);
  spike.skipped = spike.spike = true;
  const NumericState before = guard.state();
  EXPECT_EQ(guard.Judge(spike).action, NumericGuard::Action::kStop);
  EXPECT_EQ(guard.state(), before);
}

TEST(NumericGuard, WithoutSigmaNothingIsASpike) {
  NumericGuard guard{v1::TrainSpec()};
  for (int i = 0; i < 100; ++i) guard.Judge(Figures(1, 1));
  EXPECT_TRUE(std::isinf(guard.bounds().loss) && std::isinf(guard.bounds().grad_norm));
  EXPECT_EQ(guard.state(), NumericState());
}

TEST(NumericGuard, AnUpdateBetweenSkipsStartsTheCountAgain) {
  v1::TrainSpec spec;
  spec.set_on_non_finite(v1::NON_FINITE_POLICY_SKIP);
  spec.set_max_consecutive_skips(1);
  NumericGuard guard(spec);
  StepResult bad = Figures(std::numeric_limits<double>::infinity(), 1);
  bad.skipped = bad.non_finite = true;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(guard.Judge(bad).action, NumericGuard::Action::kGoOn);
    EXPECT_EQ(guard.Judge(Figures(1, 1)).action, NumericGuard::Action::kGoOn);
  }
  EXPECT_EQ(guard.Judge(bad).action, NumericGuard::Action::kGoOn);
  EXPECT_EQ(guard.Judge(bad).action, NumericGuard::Action::kStop);
}

// No valid target: nothing was wrong with the figures.
TEST(NumericGuard, AnEmptyStepIsNoFault) {
  v1::TrainSpec spec;
  spec.set_max_consecutive_skips(1);
  NumericGuard guard(spec);
  StepResult empty;
  empty.skipped = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(guard.Judge(empty).type, "EMPTY_STEP");
  EXPECT_EQ(guard.state().consecutive_skips, 0);
}

}  // namespace
}  // namespace fsdp

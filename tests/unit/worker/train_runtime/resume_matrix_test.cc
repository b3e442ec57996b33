// Saved on one number of ranks, gone on with on another: the next ten losses are those of the run
// that was not interrupted, and the data is read in the same order.

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"

namespace fsdp {
namespace {

class ResumeMatrixTest : public TrainerTest {
 protected:
  static constexpr std::int64_t kSaved = 3;
  static constexpr std::int64_t kSteps = kSaved + 10;
  static constexpr std::int64_t kBatch = 5;  // TrainerTest's: 8 ranks get none each

  // The whole run on `world` ranks, with a checkpoint of kSaved that stays.
  const std::vector<double>& Whole(int world) {
    std::vector<double>& losses = whole_[world];
    if (!losses.empty()) return losses;
    v1::TrainingJob job = Job(kSteps);
    if (mixed_) Mix(&job);
    v1::CheckpointSpec& checkpoint = *job.mutable_spec()->mutable_checkpoint();
    checkpoint.set_dir(DirectoryOf(world));
    checkpoint.set_every_steps(kSaved);
    checkpoint.set_keep_last(0);
    checkpoint.set_async(true);
    Epoch epoch(job, world);
    epoch.Run();
    EXPECT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    losses = epoch.links[0]->Losses();
    return losses;
  }
  [[nodiscard]] std::string DirectoryOf(int world) const {
    return absl::StrCat(directory_, "/of-", world);
  }

  void Check(const std::vector<int>& worlds) {
    for (const int from : worlds) {
      const std::vector<double> same_world = Whole(from);
      ASSERT_EQ(same_world.size(), static_cast<std::size_t>(kSteps));
      const std::string saved =
          absl::StrCat(DirectoryOf(from), "/test/", StepDirectoryName(kSaved, 1));
      for (const int to : worlds) {
        SCOPED_TRACE(absl::StrCat("from ", from, " ranks to ", to));
        v1::TrainingJob job = JobWithCheckpoints(kSteps);
        if (mixed_) Mix(&job);
        Epoch epoch(job, to);
        epoch.number = 2;
        epoch.resume = saved;
        epoch.Run();
        ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
        const std::vector<double> losses = epoch.links[0]->Losses();
        ASSERT_EQ(losses.size(), 10U);
        for (std::size_t i = 0; i < losses.size(); ++i) {
          const double expected = same_world[static_cast<std::size_t>(kSaved) + i];
          if (from == to) {
            EXPECT_EQ(losses[i], expected) << "step " << kSaved + 1 + static_cast<int>(i);
          } else {
            // Sums in another order round differently, and ten updates carry it on.
            EXPECT_NEAR(losses[i], expected, 1e-5) << "step " << kSaved + 1 + static_cast<int>(i);
          }
        }
        const auto end = Newest();
        ASSERT_TRUE(end.ok()) << end.status();
        EXPECT_EQ(end->manifest->position, kSteps * kBatch);
        EXPECT_EQ(end->manifest->tokens, kSteps * kBatch * job.spec().data().sequence_length());
        std::filesystem::remove_all(directory_ + "/checkpoints");
      }
    }
  }

  bool mixed_ = false;  // several sources drawn by weight
  std::map<int, std::vector<double>> whole_;
};

TEST_F(ResumeMatrixTest, SomeWorldSizes) { Check({1, 3, 8}); }

TEST_F(ResumeMatrixTest, AMixtureOnSomeWorldSizes) {
  mixed_ = true;
  Check({1, 3});
}

// tests/run_long: 25 pairs.
TEST_F(ResumeMatrixTest, DISABLED_AllWorldSizes) { Check({1, 2, 3, 4, 8}); }

}  // namespace
}  // namespace fsdp

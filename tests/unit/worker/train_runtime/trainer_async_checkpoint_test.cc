// checkpoint.async: the same bytes as a save that training waits for, published under the same
// rules.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

class AsyncCheckpointTest : public TrainerTest {
 protected:
  v1::TrainingJob AsyncJob(std::int64_t steps, std::int64_t every) {
    v1::TrainingJob job = JobWithCheckpoints(steps);
    job.mutable_spec()->mutable_checkpoint()->set_async(true);
    job.mutable_spec()->mutable_checkpoint()->set_every_steps(every);
    job.mutable_spec()->mutable_checkpoint()->set_keep_last(0);
    return job;
  }
  // The shard files' bytes by "step folder/name".
  [[nodiscard]] static std::map<std::string, std::string> Shards(const std::string& root) {
    std::map<std::string, std::string> shards;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      shards[std::filesystem::relative(entry.path(), root)] =
          std::string(std::istreambuf_iterator<char>(file), {});
    }
    return shards;
  }
};

TEST_F(AsyncCheckpointTest, HoldsWhatASynchronousOneHolds) {
  for (const auto dtype : {v1::PRECISION_D_TYPE_FP32, v1::PRECISION_D_TYPE_BF16}) {
    for (const int world : {1, 3}) {
      std::map<std::string, std::string> shards[2];
      for (const bool async : {false, true}) {
        std::filesystem::remove_all(directory_ + "/checkpoints");
        v1::TrainingJob job = AsyncJob(7, 2);
        job.mutable_spec()->mutable_checkpoint()->set_async(async);
        job.mutable_spec()->mutable_precision()->set_parameters(dtype);
        Epoch epoch(job, world);
        epoch.Run();
        ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
        EXPECT_EQ(epoch.done().checkpoint_step(), 7);
        const auto entries = ListCheckpoints(BlobStore::Posix(), Root()).value();
        ASSERT_EQ(entries.size(), 4U);  // 2, 4, 6 and the last
        for (const CatalogEntry& entry : entries) EXPECT_EQ(entry.problem, "");
        shards[async ? 1 : 0] = Shards(Root());
      }
      EXPECT_EQ(shards[0].size(), 4U * static_cast<std::size_t>(world));
      EXPECT_TRUE(shards[0] == shards[1]) << "world " << world << ", dtype " << dtype;
    }
  }
}

TEST_F(AsyncCheckpointTest, AStopWaitsForTheCheckpointItAsksFor) {
  Epoch epoch(AsyncJob(50, 0), 2);
  epoch.links[1]->StopAfter(3, v1::STOP_MODE_CHECKPOINT);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_FALSE(epoch.done().finished());
  EXPECT_EQ(Newest()->step, epoch.done().last_step());
  EXPECT_EQ(epoch.links[0]->Order(),
            "joined ceilings running step shard_written manifest published done");
}

TEST_F(AsyncCheckpointTest, AVerdictThatComesLateDoesNotStopTraining) {
  Epoch epoch(AsyncJob(6, 2), 2);
  epoch.links[0]->SetVerdicts(FakeLink::Verdicts::kAdmitWhenDone);
  epoch.Run();
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_EQ(epoch.links[0]->Steps().size(), 6U);
  EXPECT_EQ(ListCheckpoints(BlobStore::Posix(), Root())->size(), 3U);
  EXPECT_EQ(Newest()->step, 6);
}

TEST_F(AsyncCheckpointTest, ARefusedManifestIsNeverPublished) {
  Epoch epoch(AsyncJob(4, 2));
  epoch.links[0]->SetVerdicts(FakeLink::Verdicts::kRefuse);
  epoch.Run();
  EXPECT_EQ(CauseOf(epoch.results[0].status()), v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_FALSE(Newest().ok());
}

// A disk that is full on one rank: all of them end, and that one says why.
TEST_F(AsyncCheckpointTest, AShardThatCannotBeWrittenEndsAllRanks) {
  // A folder in the place of rank 1's file: the rename fails.
  std::filesystem::create_directories(Root() + "/step-00000002.e00001/rank-00001.safetensors/x");
  Epoch epoch(AsyncJob(8, 2), 3);
  epoch.Run();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(CauseOf(epoch.results[rank].status()), v1::FAILURE_CAUSE_CHECKPOINT)
        << epoch.results[rank].status();
  }
  for (const auto& link : epoch.links) {
    EXPECT_THAT(link->Failure().message(), HasSubstr("rename("));
  }
  EXPECT_EQ(epoch.links[0]->Failure().peer(), 1);
  EXPECT_FALSE(Newest().ok());
}

}  // namespace
}  // namespace fsdp

// A process that is killed at any write, fsync or rename of a save leaves a checkpoint that loads:
// the one before, or the new one. The points are those that the save itself goes through.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/fakes/killing_blob_store.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"

namespace fsdp {
namespace {

class SaveKillTest : public TrainerTest {
 protected:
  static constexpr int kWorld = 2;
  static constexpr std::int64_t kBefore = 2;  // the step of the checkpoint before
  static constexpr std::int64_t kStep = 3;    // and of the one during whose save it is killed

  v1::TrainingJob JobTo(std::int64_t steps, bool async) {
    v1::TrainingJob job = JobWithCheckpoints(steps);
    job.mutable_spec()->mutable_checkpoint()->set_async(async);
    job.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
    return job;
  }
  // From the checkpoint before to kStep, in the second epoch.
  bool SaveAgain(BlobStore& store, bool async) {
    Epoch epoch(JobTo(kStep, async), kWorld);
    epoch.number = 2;
    epoch.store = &store;
    epoch.resume = Root() + "/" + StepDirectoryName(kBefore, 1);
    epoch.Run();
    return epoch.results[0].ok() && epoch.results[1].ok();
  }
  void Restore() {
    std::filesystem::remove_all(directory_ + "/checkpoints");
    std::filesystem::copy(directory_ + "/saved", directory_ + "/checkpoints",
                          std::filesystem::copy_options::recursive);
  }
  // Goes on from the newest to step 5; the losses of steps 4 and 5.
  std::vector<double> LossesAfter(std::int64_t* resumed_from) {
    const auto newest = Newest();
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return {};
    *resumed_from = newest->step;
    v1::TrainingJob job = Job(kStep + 2);
    Epoch epoch(job, kWorld);
    epoch.number = 3;
    epoch.resume = newest->path;
    epoch.Run();
    EXPECT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
    std::vector<double> losses = epoch.links[0]->Losses();
    if (losses.size() > 2) losses.erase(losses.begin(), losses.end() - 2);
    return losses;
  }
};

TEST_F(SaveKillTest, EveryPointLeavesACheckpointThatLoads) {
  Epoch whole(Job(kStep + 2), kWorld);
  whole.Run();
  ASSERT_TRUE(whole.results[0].ok()) << whole.results[0].status();
  std::vector<double> expected = whole.links[0]->Losses();
  expected.erase(expected.begin(), expected.end() - 2);
  Epoch first(JobTo(kBefore, false), kWorld);
  first.Run();
  ASSERT_TRUE(first.results[0].ok()) << first.results[0].status();
  std::filesystem::rename(directory_ + "/checkpoints", directory_ + "/saved");

  for (const bool async : {false, true}) {
    Restore();
    KillingBlobStore counting(BlobStore::Posix());
    ASSERT_TRUE(SaveAgain(counting, async));
    ASSERT_EQ(Newest()->step, kStep);
    const std::vector<std::string> points = counting.points();
    std::set<std::string> operations;
    for (const std::string& point : points) operations.insert(point.substr(0, point.find(' ')));
    EXPECT_EQ(operations, (std::set<std::string>{"create", "fsync", "mkdir", "remove", "rename",
                                                 "unlink", "write"}));
    std::set<std::int64_t> found;
    for (const std::string& point : points) {
      Restore();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        KillingBlobStore killing(BlobStore::Posix(), point);
        ::_exit(SaveAgain(killing, async) ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
          << point << " was not reached: " << status;
      std::int64_t step = 0;
      EXPECT_EQ(LossesAfter(&step), expected) << "killed at " << point;
      // Nothing before the manifest's rename makes it the new one.
      const bool cleared = absl::StartsWith(point, "unlink") || absl::StartsWith(point, "remove");
      if (cleared) {
        EXPECT_EQ(step, kStep) << point;
      }
      found.insert(step);
    }
    EXPECT_EQ(found, (std::set<std::int64_t>{kBefore, kStep}));
  }
}

}  // namespace
}  // namespace fsdp

#include "coordinator/store/backup.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class BackupTest : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteStore> Open(const std::string& directory) {
    auto store = SqliteStore::Open({.directory = directory});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // A job and its attempt in each batch: a backup has both or none.
  static StoreBatch Batch(int number) {
    StoreBatch batch;
    records::JobRecord record;
    record.mutable_job()->set_name(absl::StrCat("jobs/j", number));
    record.set_position(number);
    batch.jobs.push_back(record);
    v1::Attempt attempt;
    attempt.set_attempt(1);
    batch.attempts.push_back({JobId(absl::StrCat("j", number)), attempt});
    return batch;
  }

  const TemporaryFolder folder_;
  const std::string state_ = folder_.Path("state");
  const std::string file_ = folder_.Path("jobs.backup");
};

TEST_F(BackupTest, OneThatIsTakenWhileJobsAreWrittenIsOfOneMoment) {
  auto store = Open(state_);
  std::atomic<bool> stop{false};
  std::atomic<int> acknowledged{0};
  std::thread writer([&] {
    for (int i = 1; !stop; ++i) {
      store->Write(Batch(i), [&acknowledged, i](const absl::Status& status) {
        EXPECT_TRUE(status.ok());
        acknowledged = i;
      });
      store->Flush().IgnoreError();
    }
  });
  while (acknowledged < 5) std::this_thread::yield();
  const int before = acknowledged;
  const absl::Status taken = BackUpStore(state_, file_);
  stop = true;
  writer.join();
  ASSERT_TRUE(taken.ok()) << taken;
  const std::string other = folder_.Path("other");
  const absl::Status restored = RestoreStore(file_, other);
  ASSERT_TRUE(restored.ok()) << restored;
  const StoreContents contents = *Open(other)->Load();
  EXPECT_GE(static_cast<int>(contents.jobs.size()), before);
  for (const StoredJob& job : contents.jobs) EXPECT_EQ(job.attempts.size(), 1u);
}

TEST_F(BackupTest, SumsAreThoseOfSha256sum) {
  Open(state_).reset();
  ASSERT_TRUE(BackUpStore(state_, file_).ok());
  EXPECT_EQ(
      std::system(absl::StrCat("cd ", folder_.path(), " && sha256sum --quiet -c jobs.backup.sha256")
                      .c_str()),
      0);
  EXPECT_FALSE(std::filesystem::exists(file_ + ".tmp"));
  EXPECT_EQ(std::filesystem::status(file_).permissions() & std::filesystem::perms::others_all,
            std::filesystem::perms::none);
}

TEST_F(BackupTest, NothingIsOverwritten) {
  Open(state_).reset();
  ASSERT_TRUE(BackUpStore(state_, file_).ok());
  const absl::Status again = BackUpStore(state_, file_);
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  const absl::Status onto = RestoreStore(file_, state_);
  EXPECT_EQ(onto.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(onto.message()), HasSubstr("restore into an empty directory"));
  const absl::Status missing = BackUpStore(folder_.Path("nowhere"), folder_.Path("b"));
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
}

TEST_F(BackupTest, ADamagedBackupRestoresNothing) {
  {
    auto store = Open(state_);
    for (int i = 1; i <= 200; ++i) store->Write(Batch(i), nullptr);
  }
  ASSERT_TRUE(BackUpStore(state_, file_).ok());
  {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 2 + 100);
    file << "damage";
  }
  const std::string other = folder_.Path("other");
  const absl::Status damaged = RestoreStore(file_, other);
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("is not what was backed up"));
  EXPECT_FALSE(std::filesystem::exists(other + "/jobs.db"));
  std::filesystem::remove(file_ + ".sha256");
  const absl::Status without = RestoreStore(file_, other);
  EXPECT_EQ(without.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(without.message()), HasSubstr("jobs.backup.sha256 is not there"));
}

TEST_F(BackupTest, ARestoreIntoADirectoryInUseIsRefused) {
  Open(state_).reset();
  ASSERT_TRUE(BackUpStore(state_, file_).ok());
  const auto busy = Open(folder_.Path("busy"));
  const absl::Status refused = RestoreStore(file_, folder_.Path("busy"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another coordinator (pid "));
}

}  // namespace
}  // namespace fsdp::coordinator

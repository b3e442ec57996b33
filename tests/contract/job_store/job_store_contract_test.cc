// One suite over every JobStore.

#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/store/etcd/election.h"
#include "coordinator/store/etcd/etcd_store.h"
#include "coordinator/store/job_store.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/etcd_process.h"
#include "tests/support/temporary_folder.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

records::JobRecord Job(const std::string& id, std::int64_t position) {
  records::JobRecord record;
  record.mutable_job()->set_name("jobs/" + id);
  record.mutable_job()->set_state(v1::JOB_STATE_QUEUED);
  record.set_position(position);
  return record;
}

struct Implementation {
  std::string name;
  // A new store; for durable ones, where the one of the same name was before.
  std::function<std::shared_ptr<JobStore>(const std::string& directory)> open;
  bool durable = false;
};

class JobStoreContractTest : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    store_ = GetParam().open(directory_.path());
    ASSERT_NE(store_, nullptr);
  }

  // What is written so far must be there afterwards.
  void Reopen() {
    if (!GetParam().durable) return;
    store_.reset();
    store_ = GetParam().open(directory_.path());
  }
  void Write(StoreBatch batch) {
    store_->Write(std::move(batch),
                  [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
    ASSERT_TRUE(store_->Flush().ok());
  }
  StoreContents Load() {
    auto contents = store_->Load();
    EXPECT_TRUE(contents.ok()) << contents.status();
    return *std::move(contents);
  }

  TemporaryFolder directory_;
  std::shared_ptr<JobStore> store_;
};

TEST_P(JobStoreContractTest, AnEmptyStoreHoldsNothing) {
  EXPECT_TRUE(Load().jobs.empty());
  EXPECT_TRUE(store_->ReadEvents(JobId("no"), 0, 10)->empty());
  EXPECT_TRUE(store_->ReadLogs({.job = JobId("no")})->entries.empty());
}

TEST_P(JobStoreContractTest, JobsComeBackByPositionWithTheirAttempts) {
  StoreBatch batch;
  batch.jobs = {Job("b", 2), Job("a", 1)};
  v1::Attempt attempt;
  attempt.set_attempt(1);
  batch.attempts.push_back({JobId("b"), attempt});
  Write(std::move(batch));
  StoreBatch change;
  records::JobRecord changed = Job("b", 2);
  changed.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  change.jobs = {changed};
  attempt.set_attempt(2);
  change.attempts.push_back({JobId("b"), attempt});
  Write(std::move(change));
  Reopen();
  const StoreContents contents = Load();
  ASSERT_EQ(contents.jobs.size(), 2u);
  EXPECT_EQ(contents.jobs[0].record.job().name(), "jobs/a");
  EXPECT_EQ(contents.jobs[1].record.job().state(), v1::JOB_STATE_RUNNING);
  ASSERT_EQ(contents.jobs[1].attempts.size(), 2u);
  EXPECT_EQ(contents.jobs[1].attempts[1].attempt(), 2);
}

TEST_P(JobStoreContractTest, StreamsAreReadAfterAnOffsetWithALimit) {
  StoreBatch batch;
  batch.jobs = {Job("a", 1)};
  for (int i = 1; i <= 10; ++i) {
    v1::JobEvent event;
    event.set_sequence(i);
    batch.events.push_back({JobId("a"), event});
    v1::StepMetrics metrics;
    metrics.set_offset(i);
    batch.metrics.push_back({JobId("a"), metrics});
  }
  Write(std::move(batch));
  Reopen();
  const auto events = store_->ReadEvents(JobId("a"), 4, 3);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 3u);
  EXPECT_EQ(events->front().sequence(), 5);
  EXPECT_EQ(store_->ReadMetrics(JobId("a"), 9, 100)->size(), 1u);
  EXPECT_EQ(Load().jobs[0].last_metric, 10);
}

TEST_P(JobStoreContractTest, LogsAreFilteredAndTailed) {
  StoreBatch batch;
  batch.jobs = {Job("a", 1)};
  for (int i = 1; i <= 20; ++i) {
    v1::LogEntry entry;
    entry.set_offset(i);
    entry.set_rank(i % 2);
    entry.set_attempt(i <= 10 ? 1 : 2);
    batch.logs.push_back({JobId("a"), entry});
  }
  Write(std::move(batch));
  Reopen();
  const auto of = [&](LogQuery query) {
    std::vector<std::int64_t> offsets;
    const auto page = store_->ReadLogs(query);
    EXPECT_TRUE(page.ok());
    for (const v1::LogEntry& entry : page->entries) offsets.push_back(entry.offset());
    return offsets;
  };
  LogQuery query{.job = JobId("a"), .rank = 1, .attempt = 2};
  EXPECT_THAT(of(query), ElementsAre(11, 13, 15, 17, 19));
  query.after = *store_->FindLogTail(query, 2);
  EXPECT_THAT(of(query), ElementsAre(17, 19));
  query.after = *store_->FindLogTail(query, 100);
  EXPECT_EQ(of(query).size(), 5u);
  // A page that nothing matches still says how far it looked.
  const auto page = store_->ReadLogs({.job = JobId("a"), .rank = 7, .limit = 6});
  EXPECT_TRUE(page->entries.empty());
  EXPECT_EQ(page->next_after, 6);
  EXPECT_EQ(Load().jobs[0].last_log, 20);
}

TEST_P(JobStoreContractTest, CheckpointsAreNewestFirstAndCanBeDropped) {
  StoreBatch batch;
  batch.jobs = {Job("a", 1)};
  for (const int step : {10, 30, 20}) {
    v1::CheckpointInfo info;
    info.set_step(step);
    batch.checkpoints.push_back({JobId("a"), info});
  }
  Write(std::move(batch));
  StoreBatch drop;
  drop.dropped_checkpoints.push_back({JobId("a"), 20});
  Write(std::move(drop));
  Reopen();
  const auto checkpoints = store_->ReadCheckpoints(JobId("a"));
  ASSERT_EQ(checkpoints->size(), 2u);
  EXPECT_EQ((*checkpoints)[0].step(), 30);
  EXPECT_EQ((*checkpoints)[1].step(), 10);
}

TEST_P(JobStoreContractTest, WorkersAndRendezvousComeBackUntilCleared) {
  StoreBatch batch;
  batch.jobs = {Job("a", 1)};
  records::WorkerRecord worker;
  worker.set_id("w0");
  worker.set_acked_sequence(17);
  batch.workers = {worker};
  batch.rendezvous.push_back({JobId("a"), Epoch(1), "key", std::string("v\0alue", 6)});
  Write(std::move(batch));
  Reopen();
  StoreContents contents = Load();
  ASSERT_EQ(contents.workers.size(), 1u);
  EXPECT_EQ(contents.workers[0].acked_sequence(), 17);
  ASSERT_EQ(contents.rendezvous.size(), 1u);
  EXPECT_EQ(contents.rendezvous[0].value, std::string("v\0alue", 6));
  StoreBatch clear;
  clear.cleared_rendezvous.push_back(JobId("a"));
  clear.rendezvous.push_back({JobId("a"), Epoch(2), "key", "new"});
  Write(std::move(clear));
  contents = Load();
  ASSERT_EQ(contents.rendezvous.size(), 1u);
  EXPECT_EQ(contents.rendezvous[0].epoch, Epoch(2));
}

TEST_P(JobStoreContractTest, TheRecordOfTheClusterIsOneAndIsReplaced) {
  EXPECT_FALSE(Load().cluster.has_maintenance());
  for (const char* reason : {"new switches", "worse"}) {
    StoreBatch batch;
    batch.cluster.emplace().mutable_maintenance()->set_reason(reason);
    Write(std::move(batch));
    // Others leave it alone.
    Write({});
    Reopen();
    EXPECT_EQ(Load().cluster.maintenance().reason(), reason);
  }
}

TEST_P(JobStoreContractTest, AForgottenWorkerIsGoneAndMayComeBack) {
  StoreBatch batch;
  batch.workers.resize(2);
  batch.workers[0].set_id("w0");
  batch.workers[1].set_id("w1");
  Write(std::move(batch));
  StoreBatch forget;
  forget.deleted_workers = {WorkerId("w0"), WorkerId("never-seen")};
  Write(std::move(forget));
  Reopen();
  StoreContents contents = Load();
  ASSERT_EQ(contents.workers.size(), 1u);
  EXPECT_EQ(contents.workers[0].id(), "w1");

  StoreBatch back;
  back.deleted_workers = {WorkerId("w0")};
  back.workers.resize(1);
  back.workers[0].set_id("w0");
  Write(std::move(back));
  EXPECT_EQ(Load().workers.size(), 2u);
}

TEST_P(JobStoreContractTest, ADeletedJobLeavesNothingBehind) {
  StoreBatch batch;
  batch.jobs = {Job("a", 1), Job("b", 2)};
  for (const char* id : {"a", "b"}) {
    v1::JobEvent event;
    event.set_sequence(1);
    batch.events.push_back({JobId(id), event});
  }
  Write(std::move(batch));
  StoreBatch remove;
  remove.deleted_jobs.push_back(JobId("a"));
  Write(std::move(remove));
  Reopen();
  EXPECT_EQ(Load().jobs.size(), 1u);
  EXPECT_TRUE(store_->ReadEvents(JobId("a"), 0, 10)->empty());
  EXPECT_EQ(store_->ReadEvents(JobId("b"), 0, 10)->size(), 1u);
}

TEST_P(JobStoreContractTest, DoneRunsInTheOrderOfTheWrites) {
  std::vector<int> order;
  std::mutex mutex;
  for (int i = 0; i < 200; ++i) {
    StoreBatch batch;
    batch.jobs = {Job(absl::StrCat("j", i), i + 1)};
    store_->Write(std::move(batch), [&, i](absl::Status status) {
      EXPECT_TRUE(status.ok());
      const std::lock_guard lock(mutex);
      order.push_back(i);
    });
  }
  ASSERT_TRUE(store_->Flush().ok());
  ASSERT_EQ(order.size(), 200u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(JobStoreContractTest, JoinTokensAreKeptUntilTheyAreDeleted) {
  StoreBatch batch;
  batch.join_tokens.resize(2);
  batch.join_tokens[0].set_id("b");
  batch.join_tokens[1].set_id("a");
  Write(std::move(batch));
  StoreBatch use;
  use.join_tokens.resize(1);
  use.join_tokens[0].set_id("a");
  use.join_tokens[0].set_peer("10.0.0.7");
  use.deleted_join_tokens = {"b", "never-made"};
  Write(std::move(use));
  Reopen();
  const auto tokens = store_->ReadJoinTokens();
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_EQ((*tokens)[0].peer(), "10.0.0.7");
}

TEST_P(JobStoreContractTest, NamesMayHoldAnyBytes) {
  const std::string name("a/b\0%\xff", 7);
  StoreBatch batch;
  batch.jobs = {Job("a", 1), Job("a-b", 2)};
  batch.workers.resize(1);
  batch.workers[0].set_id("rack/1 host");
  batch.rendezvous.push_back({JobId("a"), Epoch(3), name, "one"});
  batch.rendezvous.push_back({JobId("a-b"), Epoch(3), name, "two"});
  Write(std::move(batch));
  Reopen();
  StoreContents contents = Load();
  ASSERT_EQ(contents.rendezvous.size(), 2u);
  for (const RendezvousItem& item : contents.rendezvous) {
    EXPECT_EQ(item.name, name);
    EXPECT_EQ(item.epoch, Epoch(3));
    EXPECT_EQ(item.value, item.job == JobId("a") ? "one" : "two");
  }
  EXPECT_EQ(contents.workers[0].id(), "rack/1 host");
  // One job's values are not another's whose name begins with it.
  StoreBatch clear;
  clear.cleared_rendezvous.push_back(JobId("a"));
  clear.deleted_workers = {WorkerId("rack/1 host")};
  Write(std::move(clear));
  contents = Load();
  ASSERT_EQ(contents.rendezvous.size(), 1u);
  EXPECT_EQ(contents.rendezvous[0].job, JobId("a-b"));
  EXPECT_TRUE(contents.workers.empty());
}

// More changes than fit into one of etcd's transactions, and records larger than its requests.
TEST_P(JobStoreContractTest, AHugeBatchIsStoredWhole) {
  StoreBatch batch;
  for (int i = 1; i <= 300; ++i) batch.jobs.push_back(Job(absl::StrCat("j", i), i));
  records::JobRecord large = Job("large", 301);
  large.mutable_job()->set_owner(std::string(5 << 20, 'x'));
  batch.jobs.push_back(large);
  for (int i = 1; i <= 50; ++i) {
    v1::LogEntry entry;
    entry.set_offset(i);
    entry.set_text(std::string(50'000, 'a'));
    batch.logs.push_back({JobId("j1"), entry});
  }
  batch.deleted_jobs.push_back(JobId("j1"));
  Write(std::move(batch));
  Reopen();
  StoreContents contents = Load();
  ASSERT_EQ(contents.jobs.size(), 301u);
  EXPECT_EQ(contents.jobs[0].last_log, 50);
  EXPECT_EQ(contents.jobs[300].record.SerializeAsString(), large.SerializeAsString());
  EXPECT_EQ(store_->ReadLogs({.job = JobId("j1"), .after = 40})->entries.size(), 10u);
  // A smaller one in its place, then none.
  StoreBatch smaller;
  smaller.jobs = {Job("large", 301)};
  Write(std::move(smaller));
  contents = Load();
  EXPECT_EQ(contents.jobs[300].record.SerializeAsString(), Job("large", 301).SerializeAsString());
  StoreBatch remove;
  remove.deleted_jobs = {JobId("large"), JobId("j1")};
  Write(std::move(remove));
  EXPECT_EQ(Load().jobs.size(), 299u);
  EXPECT_TRUE(store_->ReadLogs({.job = JobId("j1")})->entries.empty());
}

TEST_P(JobStoreContractTest, ATailIsFoundFarBack) {
  for (int first = 1; first <= 6000; first += 500) {
    StoreBatch batch;
    if (first == 1) batch.jobs = {Job("a", 1)};
    for (int i = first; i < first + 500; ++i) {
      v1::LogEntry entry;
      entry.set_offset(i);
      entry.set_rank(i <= 10 ? 1 : 0);
      batch.logs.push_back({JobId("a"), entry});
    }
    Write(std::move(batch));
  }
  LogQuery query{.job = JobId("a"), .rank = 1};
  query.after = *store_->FindLogTail(query, 3);
  const auto page = store_->ReadLogs(query);
  ASSERT_EQ(page->entries.size(), 3u);
  EXPECT_EQ(page->entries[0].offset(), 8);
}

std::unique_ptr<JobStore> OpenSqlite(const std::string& directory) {
  auto store = SqliteStore::Open({.directory = directory});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// One etcd for all tests; it ends with them.
class EtcdEnvironment : public ::testing::Environment {
 public:
  const EtcdProcess& process() {
    if (process_ == nullptr) process_ = std::make_unique<EtcdProcess>();
    return *process_;
  }
  void TearDown() override { process_.reset(); }

 private:
  std::unique_ptr<EtcdProcess> process_;
};
// Google Test owns it.
EtcdEnvironment* const etcd_environment =
    static_cast<EtcdEnvironment*>(::testing::AddGlobalTestEnvironment(new EtcdEnvironment));

// The store and what it stands on; the directory's name serves as the prefix.
struct EtcdBundle {
  explicit EtcdBundle(const std::string& prefix) {
    client = etcd_environment->process().Connect();
    if (client == nullptr) return;
    election = std::make_unique<Election>(ElectionOptions{.prefix = prefix}, client.get());
    const auto leadership = election->Campaign(
        [](const absl::Status& status) { ADD_FAILURE() << "the lease was lost: " << status; });
    EXPECT_TRUE(leadership.ok()) << leadership.status();
    auto opened = EtcdStore::Open({.prefix = prefix}, client.get(), *leadership);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) store = *std::move(opened);
  }
  std::unique_ptr<EtcdClient> client;
  std::unique_ptr<Election> election;
  std::unique_ptr<EtcdStore> store;
};

std::shared_ptr<JobStore> OpenEtcd(const std::string& directory) {
  auto bundle = std::make_shared<EtcdBundle>(directory);
  return {bundle, bundle->store.get()};
}

INSTANTIATE_TEST_SUITE_P(All, JobStoreContractTest,
                         ::testing::Values(Implementation{"memory",
                                                          [](const std::string&) {
                                                            return std::make_shared<MemoryStore>();
                                                          },
                                                          false},
                                           Implementation{"sqlite", OpenSqlite, true},
                                           Implementation{"etcd", OpenEtcd, true}),
                         [](const auto& info) { return info.param.name; });

// --- SQLite's own promises

TEST(SqliteStoreTest, ConcurrentWritersShareFlushes) {
  TemporaryFolder directory;
  std::atomic<std::int64_t> flushes{0};
  StoreObserver observer;
  observer.on_flush = [&](absl::Duration, std::int64_t) { ++flushes; };
  auto store = SqliteStore::Open({.directory = directory.path()}, observer);
  ASSERT_TRUE(store.ok());
  constexpr int kWrites = 500;
  for (int i = 0; i < kWrites; ++i) {
    StoreBatch batch;
    batch.jobs = {Job(absl::StrCat("j", i), i + 1)};
    (*store)->Write(std::move(batch), nullptr);
  }
  ASSERT_TRUE((*store)->Flush().ok());
  EXPECT_LT(flushes, kWrites / 2);
  EXPECT_EQ((*store)->Load()->jobs.size(), static_cast<size_t>(kWrites));
}

TEST(SqliteStoreTest, ACorruptDatabaseIsNamedNotServed) {
  TemporaryFolder directory;
  {
    auto store = SqliteStore::Open({.directory = directory.path()});
    ASSERT_TRUE(store.ok());
    StoreBatch batch;
    for (int i = 0; i < 200; ++i) batch.jobs.push_back(Job(absl::StrCat("j", i), i + 1));
    (*store)->Write(std::move(batch), nullptr);
    ASSERT_TRUE((*store)->Flush().ok());
  }
  const std::string path = directory.path() + "/jobs.db";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 2);
    file << std::string(8192, '\x5a');
  }
  const auto store = SqliteStore::Open({.directory = directory.path()});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path + ": corrupt"));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("put back a copy"));
}

TEST(SqliteStoreTest, AFileThatIsNoDatabaseIsNamedWithTheRemedy) {
  TemporaryFolder directory;
  const std::string path = directory.path() + "/jobs.db";
  std::string bytes(20000, '\0');
  std::mt19937 random(1);
  for (char& byte : bytes) byte = static_cast<char>(random());
  std::filesystem::create_directories(directory.path());
  std::ofstream(path, std::ios::binary) << bytes;
  const auto store = SqliteStore::Open({.directory = directory.path()});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  const std::string message(store.status().message());
  EXPECT_THAT(message, HasSubstr(path + ": "));
  EXPECT_THAT(message, HasSubstr("file is not a database"));
  EXPECT_THAT(message, HasSubstr("put back a copy of it, or move it"));
  EXPECT_EQ(std::filesystem::file_size(path), bytes.size()) << "left as it was";
}

TEST(SqliteStoreTest, ANewerSchemaIsRefused) {
  TemporaryFolder directory;
  OpenSqlite(directory.path()).reset();
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((directory.path() + "/jobs.db").c_str(), &raw), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(raw, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(raw);
  const auto store = SqliteStore::Open({.directory = directory.path()});
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()),
              HasSubstr("/jobs.db: it has schema version 99"));
}

TEST(SqliteStoreTest, ADirectoryServesOneProcess) {
  TemporaryFolder directory;
  const auto first = OpenSqlite(directory.path());
  const auto second = SqliteStore::Open({.directory = directory.path()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("another coordinator (pid ", getpid(), " on ")));
}

}  // namespace
}  // namespace fsdp::coordinator

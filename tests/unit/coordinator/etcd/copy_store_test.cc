#include "coordinator/store/copy_store.h"

#include "absl/strings/str_cat.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "tests/unit/coordinator/etcd/etcd_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class CopyStoreTest : public EtcdTest {
 protected:
  // Something of everything.
  static StoreBatch Everything() {
    StoreBatch batch;
    batch.jobs = {Job("a", 1), Job("b", 2)};
    v1::Attempt attempt;
    attempt.set_attempt(1);
    batch.attempts.push_back({JobId("a"), attempt});
    for (int i = 1; i <= 5000; ++i) {
      v1::LogEntry line;
      line.set_offset(i);
      line.set_text(absl::StrCat("line ", i));
      batch.logs.push_back({JobId("a"), line});
    }
    for (int i = 1; i <= 7; ++i) {
      v1::JobEvent event;
      event.set_sequence(i);
      batch.events.push_back({JobId("b"), event});
      v1::StepMetrics metrics;
      metrics.set_offset(i);
      batch.metrics.push_back({JobId("b"), metrics});
    }
    v1::CheckpointInfo checkpoint;
    checkpoint.set_step(10);
    batch.checkpoints.push_back({JobId("a"), checkpoint});
    batch.workers.emplace_back().set_id("w0");
    batch.rendezvous.push_back({JobId("a"), Epoch(2), "key", "value"});
    batch.cluster.emplace().mutable_maintenance()->set_reason("moving");
    batch.join_tokens.emplace_back().set_id("t");
    return batch;
  }
  static void ExpectEverything(JobStore& store) {
    const auto contents = store.Load();
    ASSERT_TRUE(contents.ok()) << contents.status();
    ASSERT_EQ(contents->jobs.size(), 2u);
    EXPECT_EQ(contents->jobs[0].attempts.size(), 1u);
    EXPECT_EQ(contents->jobs[0].last_log, 5000);
    EXPECT_EQ(contents->jobs[1].last_metric, 7);
    EXPECT_EQ(contents->workers.size(), 1u);
    ASSERT_EQ(contents->rendezvous.size(), 1u);
    EXPECT_EQ(contents->rendezvous[0].value, "value");
    EXPECT_EQ(contents->cluster.maintenance().reason(), "moving");
    const auto logs = store.ReadLogs({.job = JobId("a"), .limit = 10'000});
    ASSERT_EQ(logs->entries.size(), 5000u);
    EXPECT_EQ(logs->entries[4711].text(), "line 4712");
    EXPECT_EQ(store.ReadEvents(JobId("b"), 0, 100)->size(), 7u);
    EXPECT_EQ(store.ReadMetrics(JobId("b"), 0, 100)->size(), 7u);
    EXPECT_EQ(store.ReadCheckpoints(JobId("a"))->size(), 1u);
    EXPECT_EQ(store.ReadJoinTokens()->size(), 1u);
  }
};

TEST_F(CopyStoreTest, FromSqliteToEtcdAndBack) {
  const TemporaryFolder folder;
  auto old = *SqliteStore::Open({.directory = folder.Path("old")});
  ASSERT_TRUE(Write(*old, Everything()).ok());
  const auto etcd = Open();
  const auto there = CopyStore(*old, *etcd);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->jobs, 2);
  EXPECT_EQ(there->log_lines, 5000);
  ExpectEverything(*etcd);
  auto fresh = *SqliteStore::Open({.directory = folder.Path("new")});
  const auto back = CopyStore(*etcd, *fresh);
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectEverything(*fresh);
  ExpectEverything(*old);
}

TEST_F(CopyStoreTest, AStoreWithJobsIsLeftAlone) {
  MemoryStore from;
  MemoryStore to;
  ASSERT_TRUE(Write(from, Everything()).ok());
  StoreBatch other;
  other.jobs = {Job("other", 1)};
  ASSERT_TRUE(Write(to, std::move(other)).ok());
  const auto copied = CopyStore(from, to);
  EXPECT_EQ(copied.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(copied.status().message()), HasSubstr("has 1 jobs and 0 workers"));
  EXPECT_EQ(NumJobs(to), 1u);
}

TEST_F(CopyStoreTest, ACopyThatBrokeOffCountsAsEmptyAndIsStartedAgain) {
  MemoryStore from;
  ASSERT_TRUE(Write(from, Everything()).ok());
  {
    const auto half = Open();
    etcd_->DieAfter(3);
    EXPECT_FALSE(CopyStore(from, *half).ok());
  }
  etcd_ = std::make_unique<BreakableEtcd>(client_.get());
  const auto again = Open();
  EXPECT_EQ(NumJobs(*again), 0u);
  ASSERT_TRUE(again->Clear().ok());
  const auto copied = CopyStore(from, *again);
  ASSERT_TRUE(copied.ok()) << copied.status();
  ExpectEverything(*again);
}

}  // namespace
}  // namespace fsdp::coordinator

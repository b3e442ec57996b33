// What EtcdStore promises beyond every store's contract: fences, repeats, crashes, bounds.

#include "absl/strings/str_cat.h"
#include "tests/unit/coordinator/etcd/etcd_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class EtcdStoreTest : public EtcdTest {
 protected:
  // 20 changes, which small limits make many transactions of.
  static StoreBatch LargeBatch() {
    StoreBatch batch;
    for (int i = 1; i <= 10; ++i) {
      batch.jobs.push_back(Job(absl::StrCat("j", i), i));
      v1::Attempt attempt;
      attempt.set_attempt(1);
      batch.attempts.push_back({JobId(absl::StrCat("j", i)), attempt});
    }
    return batch;
  }
  static EtcdStoreOptions SmallTransactions() {
    EtcdStoreOptions options;
    options.limits = {.max_ops = 6, .max_bytes = 400, .max_part_bytes = 100};
    return options;
  }
};

TEST_F(EtcdStoreTest, ABatchOfManyTransactionsIsWholeOrNotThereWhereverTheLeaderDies) {
  int total = 0;
  bool was_there = false;
  for (int survived = 0; total == 0 || survived <= total; ++survived) {
    SCOPED_TRACE(absl::StrCat("killed after ", survived, " transactions"));
    BreakableEtcd etcd(client_.get());
    auto store = Open(SmallTransactions(), &etcd);
    ASSERT_TRUE(store->Clear().ok());
    ASSERT_EQ(NumJobs(*store), 0u);
    const int before = etcd.num_txns();
    if (total > 0) etcd.DieAfter(survived);
    const absl::Status written = Write(*store, LargeBatch());
    if (total == 0) {
      ASSERT_TRUE(written.ok()) << written;
      total = etcd.num_txns() - before;
      EXPECT_GT(total, 10);
      survived = -1;
      continue;
    }
    store.reset();
    const auto next = Open(SmallTransactions(), client_.get());
    const std::size_t jobs = NumJobs(*next);
    EXPECT_THAT(jobs, AnyOf(0u, 10u));
    if (jobs == 10) {
      const absl::StatusOr<StoreContents> contents = next->Load();
      ASSERT_TRUE(contents.ok()) << contents.status();
      for (const StoredJob& job : contents->jobs) EXPECT_EQ(job.attempts.size(), 1u);
    }
    // From some point on it is there, and before that never.
    EXPECT_GE(jobs, was_there ? 10u : 0u);
    was_there = jobs == 10;
    if (written.ok()) {
      EXPECT_EQ(jobs, 10u) << "acknowledged";
    }
    // Nothing staged is left.
    etcd::RangeRequest staged;
    staged.set_key(prefix_ + "/staged/");
    staged.set_range_end(prefix_ + "/staged0");
    EXPECT_EQ(client_->Range(staged)->kvs_size(), 0);
  }
  EXPECT_TRUE(was_there);
}

TEST_F(EtcdStoreTest, ADeposedLeaderWritesNothingMore) {
  const auto store = Open();
  StoreBatch first;
  first.jobs = {Job("a", 1)};
  ASSERT_TRUE(Write(*store, std::move(first)).ok());
  Seize("10.0.0.2:7070");
  StoreBatch late;
  late.jobs = {Job("b", 2)};
  const absl::Status refused = Write(*store, std::move(late));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("no longer leads: the one at 10.0.0.2:7070 (pid 7 on host) does"));
  EXPECT_EQ(NumJobs(*Open()), 1u);
}

TEST_F(EtcdStoreTest, AWriteWhoseAnswerWasLostHappensOnce) {
  auto store = Open();
  int lost = 2;
  etcd_->SetOnTxn([&](const etcd::TxnRequest& request) -> absl::StatusOr<etcd::TxnResponse> {
    auto response = etcd_->real().Txn(request);
    if (lost-- > 0) return absl::UnavailableError("the connection broke");
    return response;
  });
  StoreBatch batch;
  batch.jobs = {Job("a", 1)};
  EXPECT_TRUE(Write(*store, std::move(batch)).ok());
  StoreBatch next;
  next.jobs = {Job("b", 2)};
  EXPECT_TRUE(Write(*store, std::move(next)).ok());
  EXPECT_EQ(NumJobs(*store), 2u);
}

TEST_F(EtcdStoreTest, AWriteThatComesLateChangesNothing) {
  auto store = Open();
  std::vector<etcd::TxnRequest> held;
  etcd_->SetOnTxn([&](const etcd::TxnRequest& request) -> absl::StatusOr<etcd::TxnResponse> {
    if (held.empty()) {
      held.push_back(request);
      return absl::DeadlineExceededError("the member is slow");
    }
    return etcd_->real().Txn(request);
  });
  for (const char* owner : {"first", "second"}) {
    StoreBatch batch;
    batch.jobs = {Job("a", 1)};
    batch.jobs[0].mutable_job()->set_owner(owner);
    ASSERT_TRUE(Write(*store, std::move(batch)).ok());
  }
  const auto late = client_->Txn(held.at(0));
  ASSERT_TRUE(late.ok());
  EXPECT_FALSE(late->succeeded());
  EXPECT_EQ(store->Load()->jobs[0].record.job().owner(), "second");
}

TEST_F(EtcdStoreTest, BatchesOfOneTransactionAreInOrder) {
  const auto store = Open();
  for (int i = 1; i <= 50; ++i) {
    StoreBatch batch;
    batch.jobs = {Job("a", i)};
    v1::CheckpointInfo checkpoint;
    checkpoint.set_step(5);
    if (i % 2 == 0) {
      batch.checkpoints.push_back({JobId("a"), checkpoint});
    } else {
      batch.dropped_checkpoints.push_back({JobId("a"), 5});
    }
    store->Write(std::move(batch), nullptr);
  }
  ASSERT_TRUE(store->Flush().ok());
  EXPECT_LT(etcd_->num_txns(), 50);
  EXPECT_EQ(store->Load()->jobs[0].record.position(), 50);
  EXPECT_EQ(store->ReadCheckpoints(JobId("a"))->size(), 1u);
}

TEST_F(EtcdStoreTest, OfALongHistoryTheNewestIsKept) {
  EtcdStoreOptions options;
  options.history_bytes = 20'000;
  auto store = Open(options, etcd_.get());
  for (int i = 1; i <= 100; ++i) {
    StoreBatch batch;
    if (i == 1) batch.jobs = {Job("a", 1)};
    v1::LogEntry entry;
    entry.set_offset(i);
    entry.set_text(std::string(1000, 'x'));
    batch.logs.push_back({JobId("a"), entry});
    v1::StepMetrics metrics;
    metrics.set_offset(i);
    batch.metrics.push_back({JobId("a"), metrics});
    ASSERT_TRUE(Write(*store, std::move(batch)).ok());
    if (i % 40 == 0) store = Open(options, etcd_.get());
  }
  const auto logs = store->ReadLogs({.job = JobId("a")});
  ASSERT_FALSE(logs->entries.empty());
  EXPECT_EQ(logs->entries.back().offset(), 100);
  EXPECT_LE(logs->entries.size(), 20u);
  EXPECT_GE(logs->entries.size(), 14u);
  EXPECT_EQ(store->ReadMetrics(JobId("a"), 0, 1000)->size(), 100u) << "short ones all stay";
  EXPECT_EQ(store->Load()->jobs[0].last_log, 100);
}

TEST_F(EtcdStoreTest, WhatWasOverwrittenIsCompacted) {
  EtcdStoreOptions options;
  options.compaction_period = absl::Nanoseconds(1);
  const auto store = Open(options, etcd_.get());
  for (int i = 1; i <= 5; ++i) {
    StoreBatch batch;
    batch.jobs = {Job("a", i)};
    ASSERT_TRUE(Write(*store, std::move(batch)).ok());
  }
  EXPECT_GE(etcd_->num_compactions(), 5);
  etcd::RangeRequest old;
  old.set_key(prefix_ + "/sequence");
  old.set_revision(2);
  EXPECT_EQ(client_->Range(old).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(EtcdStoreTest, AnEtcdThatIsFullIsToldWithTheRemedy) {
  const EtcdProcess small({"--quota-backend-bytes=1000000"});
  const auto client = small.Connect();
  ASSERT_NE(client, nullptr);
  etcd::TxnRequest lead;
  lead.add_success()->mutable_request_put()->set_key(prefix_ + "/leader");
  const auto led = client->Txn(lead);
  ASSERT_TRUE(led.ok()) << led.status();
  auto store = EtcdStore::Open({.prefix = prefix_}, client.get(),
                               {.create_revision = led->header().revision()});
  ASSERT_TRUE(store.ok()) << store.status();
  absl::Status status;
  for (int i = 1; i <= 10 && status.ok(); ++i) {
    StoreBatch batch;
    batch.jobs = {Job(absl::StrCat("j", i), i)};
    batch.jobs[0].mutable_job()->set_owner(std::string(400'000, 'x'));
    status = Write(**store, std::move(batch));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("database space exceeded"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--quota-backend-bytes"));
}

TEST_F(EtcdStoreTest, ALaterLayoutIsRefused) {
  etcd::TxnRequest request;
  request.add_success()->mutable_request_put()->set_key(prefix_ + "/format");
  request.mutable_success(0)->mutable_request_put()->set_value("2");
  ASSERT_TRUE(client_->Txn(request).ok());
  const auto store = EtcdStore::Open({.prefix = prefix_}, client_.get(), Seize());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("use a newer fsdp-coordinator"));
}

}  // namespace
}  // namespace fsdp::coordinator

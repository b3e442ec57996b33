#ifndef FSDPCTL_TESTS_UNIT_COORDINATOR_ETCD_ETCD_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_COORDINATOR_ETCD_ETCD_FIXTURE_H_

// One etcd for all tests of a suite; each test has a prefix of its own.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/store/etcd/election.h"
#include "coordinator/store/etcd/etcd_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/breakable_etcd.h"
#include "tests/support/etcd_process.h"

namespace fsdp::coordinator {

class EtcdTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { process_ = std::make_unique<EtcdProcess>(); }
  static void TearDownTestSuite() { process_.reset(); }

  void SetUp() override {
    client_ = process_->Connect();
    ASSERT_NE(client_, nullptr);
    prefix_ = std::string("/") + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    etcd_ = std::make_unique<BreakableEtcd>(client_.get());
  }

  // Leads at once, whoever led before: as when its lease had ended. The old one is not told.
  Leadership Seize(const std::string& address = "new:1") {
    EtcdKeys keys(prefix_);
    etcd::TxnRequest request;
    request.add_success()->mutable_request_delete_range()->set_key(keys.Leader());
    EXPECT_TRUE(client_->Txn(request).ok());
    etcd_v1::Leader self;
    self.set_address(address);
    self.set_host("host");
    self.set_pid(7);
    etcd::TxnRequest put;
    put.add_success()->mutable_request_put()->set_key(keys.Leader());
    put.mutable_success(0)->mutable_request_put()->set_value(self.SerializeAsString());
    const auto response = client_->Txn(put);
    EXPECT_TRUE(response.ok()) << response.status();
    return {.create_revision = response->header().revision()};
  }
  std::unique_ptr<EtcdStore> Open(EtcdStoreOptions options, Etcd* etcd) {
    options.prefix = prefix_;
    auto store = EtcdStore::Open(std::move(options), etcd, Seize());
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::unique_ptr<EtcdStore> Open() { return Open({}, etcd_.get()); }

  static records::JobRecord Job(const std::string& id, std::int64_t position) {
    records::JobRecord record;
    record.mutable_job()->set_name("jobs/" + id);
    record.set_position(position);
    return record;
  }
  // What became of it.
  static absl::Status Write(JobStore& store, StoreBatch batch) {
    absl::Status result;
    store.Write(std::move(batch), [&result](absl::Status status) { result = std::move(status); });
    store.Flush().IgnoreError();
    return result;
  }
  static std::size_t NumJobs(JobStore& store) {
    const auto contents = store.Load();
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? contents->jobs.size() : 0;
  }

  static inline std::unique_ptr<EtcdProcess> process_;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<BreakableEtcd> etcd_;
  std::string prefix_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_UNIT_COORDINATOR_ETCD_ETCD_FIXTURE_H_

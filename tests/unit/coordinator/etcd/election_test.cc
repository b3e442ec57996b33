#include "coordinator/store/etcd/election.h"

#include <atomic>
#include <future>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/unit/coordinator/etcd/etcd_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class ElectionTest : public EtcdTest {
 protected:
  std::unique_ptr<Election> Candidate(const std::string& address, Etcd* etcd) {
    ElectionOptions options{
        .prefix = prefix_, .ttl = absl::Seconds(2), .poll_period = absl::Milliseconds(20)};
    options.self.set_address(address);
    options.self.set_incarnation(address);
    return std::make_unique<Election>(std::move(options), etcd);
  }
};

TEST_F(ElectionTest, OneLeadsAndTheOtherKnowsWhoAndFollowsAtOnce) {
  auto first = Candidate("a:1", client_.get());
  auto second = Candidate("b:1", client_.get());
  const auto led = first->Campaign([](const absl::Status& status) { ADD_FAILURE() << status; });
  ASSERT_TRUE(led.ok()) << led.status();
  std::atomic<bool> second_leads{false};
  std::thread standby([&] {
    const auto next = second->Campaign([](const absl::Status&) {});
    second_leads = true;
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_GT(next->create_revision, led->create_revision);
  });
  while (!second->leader()) std::this_thread::yield();
  EXPECT_EQ(second->leader()->address(), "a:1");
  // Longer than the lease: it is kept alive.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_FALSE(second_leads);
  first->Resign();
  standby.join();
  EXPECT_EQ(second->leader()->address(), "b:1");
}

TEST_F(ElectionTest, ALeaderThatIsCutOffGivesUpAndAnotherOneLeads) {
  auto first = Candidate("a:1", etcd_.get());
  auto second = Candidate("b:1", client_.get());
  std::promise<absl::Status> lost;
  ASSERT_TRUE(first->Campaign([&](const absl::Status& status) { lost.set_value(status); }).ok());
  etcd_->CutLeases();
  ASSERT_TRUE(second->Campaign([](const absl::Status&) {}).ok());
  const absl::Status status = lost.get_future().get();
  EXPECT_THAT(std::string(status.message()), HasSubstr("no longer leads"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cut off"));
}

TEST_F(ElectionTest, AStandbyCanBeStopped) {
  auto first = Candidate("a:1", client_.get());
  auto second = Candidate("b:1", client_.get());
  ASSERT_TRUE(first->Campaign([](const absl::Status&) {}).ok());
  std::thread standby([&] {
    EXPECT_EQ(second->Campaign([](const absl::Status&) {}).status().code(),
              absl::StatusCode::kCancelled);
  });
  while (!second->leader()) std::this_thread::yield();
  second->Resign();
  standby.join();
}

TEST_F(ElectionTest, ACampaignWhoseAnswerWasLostHasStillWon) {
  auto first = Candidate("a:1", etcd_.get());
  int calls = 0;
  etcd_->SetOnTxn([&](const etcd::TxnRequest& request) -> absl::StatusOr<etcd::TxnResponse> {
    auto response = client_->Txn(request);
    // The first looks, the second makes the key.
    if (++calls == 2) return absl::UnavailableError("the connection broke");
    return response;
  });
  const auto led = first->Campaign([](const absl::Status& status) { ADD_FAILURE() << status; });
  ASSERT_TRUE(led.ok()) << led.status();
  // With the right to write.
  auto store = EtcdStore::Open({.prefix = prefix_}, client_.get(), *led);
  ASSERT_TRUE(store.ok()) << store.status();
}

}  // namespace
}  // namespace fsdp::coordinator

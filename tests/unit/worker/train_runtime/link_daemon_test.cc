#include "worker/train/link_daemon.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/framed_socket.h"

namespace fsdp {
namespace {

// The daemon's end of the socket, and a link at the other.
class LinkTest : public testing::Test {
 protected:
  LinkTest() {
    const auto [mine, theirs] = MakeSocketPair().value();
    daemon_ = std::make_unique<FramedSocket>(mine);
    v1::DaemonToTrainer start;
    start.mutable_start()->mutable_assignment()->mutable_key()->set_job("jobs/a");
    start.mutable_start()->mutable_assignment()->mutable_key()->set_epoch(4);
    start.mutable_start()->set_cpu_threads(3);
    EXPECT_TRUE(daemon_->Write(start).ok());
    auto link =
        DaemonLink::Connect(theirs, "cpu", [this](const absl::Status&) { SetLost(); }, &start_);
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    hello_ = Receive();
  }

  v1::TrainerToDaemon Receive() {
    v1::TrainerToDaemon message;
    EXPECT_TRUE(daemon_->Read(&message).ok());
    return message;
  }
  void SetLost() {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = true;
    changed_.notify_all();
  }
  void WaitLost() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return lost_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool lost_ = false;
  v1::TrainerStart start_;
  v1::TrainerToDaemon hello_;
  std::unique_ptr<FramedSocket> daemon_;
  std::unique_ptr<DaemonLink> link_;
};

TEST_F(LinkTest, SaysHelloAndTakesTheAssignment) {
  EXPECT_EQ(hello_.hello().backend(), "cpu");
  EXPECT_GT(hello_.hello().pid(), 0);
  EXPECT_EQ(start_.assignment().key().epoch(), 4);
  EXPECT_EQ(start_.cpu_threads(), 3);
}

TEST_F(LinkTest, WaitsForTheCommit) {
  std::thread waiter([&] { EXPECT_EQ(link_->WaitCommit()->key().epoch(), 4); });
  v1::DaemonToTrainer commit;
  commit.mutable_commit()->mutable_key()->set_epoch(4);
  ASSERT_TRUE(daemon_->Write(commit).ok());
  waiter.join();
}

TEST_F(LinkTest, RendezvousGoesThroughTheDaemon) {
  ASSERT_TRUE(link_->rendezvous().Put("gloo/gather/0", "address").ok());
  const v1::TrainerToDaemon put = Receive();
  EXPECT_EQ(put.rendezvous_put().value(), "address");
  EXPECT_EQ(put.rendezvous_put().key().job(), "jobs/a");
  std::thread waiter([&] {
    EXPECT_EQ(link_->rendezvous().Get("gloo/gather/1", absl::Seconds(30)).value(), "other");
  });
  EXPECT_EQ(Receive().rendezvous_get().name(), "gloo/gather/1");
  v1::DaemonToTrainer value;
  value.mutable_rendezvous_value()->set_name("gloo/gather/1");
  value.mutable_rendezvous_value()->set_value("other");
  ASSERT_TRUE(daemon_->Write(value).ok());
  waiter.join();
  EXPECT_EQ(link_->rendezvous().Get("gloo/gather/2", absl::Milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LinkTest, VerdictsAreByStep) {
  EXPECT_FALSE(link_->TakeVerdict(7, absl::ZeroDuration()).has_value());
  v1::DaemonToTrainer verdict;
  verdict.mutable_manifest_verdict()->set_step(7);
  verdict.mutable_manifest_verdict()->set_admitted(true);
  ASSERT_TRUE(daemon_->Write(verdict).ok());
  EXPECT_TRUE(link_->TakeVerdict(7, absl::Seconds(30))->admitted());
  EXPECT_FALSE(link_->TakeVerdict(7, absl::ZeroDuration()).has_value());
}

TEST_F(LinkTest, TheHarshestStopWins) {
  EXPECT_FALSE(link_->stop().has_value());
  for (const v1::StopMode mode :
       {v1::STOP_MODE_CHECKPOINT, v1::STOP_MODE_DRAIN, v1::STOP_MODE_CHECKPOINT}) {
    v1::DaemonToTrainer stop;
    stop.mutable_stop()->set_mode(mode);
    ASSERT_TRUE(daemon_->Write(stop).ok());
  }
  v1::DaemonToTrainer commit;  // what comes after them has been read when this has
  commit.mutable_commit();
  ASSERT_TRUE(daemon_->Write(commit).ok());
  ASSERT_TRUE(link_->WaitCommit().ok());
  EXPECT_EQ(link_->stop()->mode(), v1::STOP_MODE_DRAIN);
}

TEST_F(LinkTest, ADumpRequestRunsTheHandler) {
  std::mutex mutex;
  std::condition_variable changed;
  bool dumped = false;
  link_->OnDump([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    dumped = true;
    changed.notify_all();
  });
  v1::DaemonToTrainer dump;
  dump.mutable_dump()->set_reason("hang");
  ASSERT_TRUE(daemon_->Write(dump).ok());
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return dumped; });
}

TEST_F(LinkTest, TheDaemonsEndIsNoticedAtOnce) {
  std::thread waiter(
      [&] { EXPECT_EQ(link_->WaitCommit().status().code(), absl::StatusCode::kUnavailable); });
  daemon_.reset();
  WaitLost();
  waiter.join();
  EXPECT_FALSE(link_->Send(v1::TrainerToDaemon()).ok());
}

TEST(DaemonLinkConnect, ADaemonThatGoesBeforeTheStartIsAnError) {
  const auto [mine, theirs] = MakeSocketPair().value();
  std::make_unique<FramedSocket>(mine).reset();
  v1::TrainerStart start;
  EXPECT_EQ(DaemonLink::Connect(
                theirs, "cpu", [](const absl::Status&) {}, &start)
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace fsdp

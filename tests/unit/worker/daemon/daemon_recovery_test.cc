// The daemon when its coordinator, its stream, its epoch or its own life ends.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/daemon_fixture.h"
#include "worker/daemon/daemon_link.pb.h"
#include "worker/daemon/files.h"
#include "worker/daemon/trainer_process.h"

namespace fsdp::daemon {
namespace {

using ::testing::HasSubstr;

TEST_F(DaemonTest, AfterAReconnectPendingQuestionsAreAskedAgain) {
  StartAndGreet();
  coordinator_->Send(StartRank("put a 1;get b;manifest 7;exit 0"));
  ASSERT_TRUE(coordinator_->WaitForMessage([](const auto& m) { return m.has_rendezvous_get(); }));
  RestartCoordinator({});
  const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
  ASSERT_TRUE(hello);
  const v1::EpochKey key = hello->hello().running().key();
  ASSERT_TRUE(coordinator_->WaitForMessage([](const auto& m) { return m.has_rendezvous_put(); }));
  ASSERT_TRUE(coordinator_->WaitForMessage([](const auto& m) { return m.has_rendezvous_get(); }));
  v1::ConnectResponse response;
  *response.mutable_rendezvous_value()->mutable_key() = key;
  response.mutable_rendezvous_value()->set_name("b");
  coordinator_->Send(response);
  ASSERT_TRUE(WaitForReport(v1::Report::kManifest));
  // The verdict is lost with the coordinator.
  RestartCoordinator({});
  ASSERT_TRUE(WaitForReport(v1::Report::kManifest));
  *response.mutable_manifest_verdict()->mutable_key() = key;
  response.mutable_manifest_verdict()->set_step(7);
  response.mutable_manifest_verdict()->set_admitted(true);
  coordinator_->Send(response);
  WaitForExit();
  EXPECT_TRUE(WaitForLine("verdict 7 admitted"));
}

TEST_F(DaemonTest, ARunningRankOutlivesItsCoordinatorAndIsAnnounced) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;steps 3;await_stop;exit 0"));
  const auto joined = WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForReport(v1::Report::kStep);
  RestartCoordinator({});
  const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->hello().running().key().epoch(), 1);
  EXPECT_EQ(hello->hello().running().key().rank(), 2);
  EXPECT_EQ(hello->hello().running().state(), v1::RANK_STATE_RUNNING);
  EXPECT_EQ(hello->hello().running().pid(), joined->joined().pid());
  EXPECT_EQ(hello->hello().running().world_size(), 3);
  SendStop(v1::STOP_MODE_DRAIN, 20);
  EXPECT_EQ(WaitForExit().exit_code(), 0);
}

TEST_F(DaemonTest, ARankThatTheCoordinatorDoesNotKnowIsKilled) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;sleep"));
  WaitForReport(v1::Report::kJoined);
  RestartCoordinator({.keep_running_rank = false});
  EXPECT_EQ(WaitForExit().signal(), SIGKILL);
}

TEST_F(DaemonTest, UnacknowledgedReportsComeAgainExactlyOnce) {
  StartAndGreet();
  // The first steps are acknowledged, then the coordinator stops doing so.
  coordinator_->Send(
      StartRank("hello;join;await_commit;running;steps 3;await_dump;steps 4;await_stop;exit 0"));
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  const auto count_steps = [](const Received& received) {
    return std::ranges::count_if(received,
                                 [](const auto& m) { return IsReport(m, v1::Report::kStep); });
  };
  ASSERT_TRUE(coordinator_->WaitFor([&](const Received& r) { return count_steps(r) == 3; }));
  coordinator_->SetAcknowledge(false);
  v1::ConnectResponse dump;
  *dump.mutable_dump_diagnostics()->mutable_key() = StartRank("").start_rank().key();
  coordinator_->Send(dump);
  ASSERT_TRUE(coordinator_->WaitFor([&](const Received& r) { return count_steps(r) == 7; }));
  const std::int64_t durable = coordinator_->durable_sequence();
  const std::map<std::int64_t, v1::Report> before = UniqueReports(coordinator_->received());

  RestartCoordinator({});
  ASSERT_TRUE(coordinator_->WaitFor([&](const Received& r) { return count_steps(r) >= 4; }));
  std::multiset<std::int64_t> again;
  for (const v1::ConnectRequest& request : coordinator_->received()) {
    if (request.has_report()) again.insert(request.report().sequence());
  }
  for (const auto& [sequence, report] : before) {
    EXPECT_EQ(again.count(sequence), sequence > durable ? 1u : 0u) << sequence;
  }
}

TEST_F(DaemonTest, CommandsOfAnOlderEpochHaveNoEffect) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;await_stop;exit 0", 5));
  WaitForReport(v1::Report::kJoined);
  SendCommit(4);
  SendStop(v1::STOP_MODE_KILL, 0, 4);
  coordinator_->Send(StartRank("exit 9", 4));
  SendCommit(5);
  ASSERT_TRUE(WaitForReport(v1::Report::kRunning));
  SendStop(v1::STOP_MODE_DRAIN, 20, 5);
  EXPECT_EQ(WaitForExit().exit_code(), 0);
  EXPECT_EQ(StopAndLook().num_stale_commands(), 3);
}

TEST_F(DaemonTest, ANewerEpochStartsOnlyAfterTheOldProcessIsGone) {
  StartAndGreet();
  coordinator_->Send(StartRank("ignore_term;hello;join;sleep", 1));
  const auto first = WaitForReport(v1::Report::kJoined);
  coordinator_->Send(StartRank("hello;join;exit 0", 2));
  ASSERT_TRUE(coordinator_->WaitFor([](const Received& received) {
    return std::ranges::any_of(received, [](const auto& m) {
      return IsReport(m, v1::Report::kExited) && m.report().key().epoch() == 2;
    });
  }));
  std::vector<std::pair<std::int64_t, v1::Report::BodyCase>> order;
  for (const auto& [sequence, report] : UniqueReports(coordinator_->received())) {
    if (!report.has_logs()) order.emplace_back(report.key().epoch(), report.body_case());
  }
  EXPECT_EQ(order,
            (std::vector<std::pair<std::int64_t, v1::Report::BodyCase>>{{1, v1::Report::kJoined},
                                                                        {1, v1::Report::kExited},
                                                                        {2, v1::Report::kJoined},
                                                                        {2, v1::Report::kExited}}));
}

TEST_F(DaemonTest, AnOrphanStops) {
  StartAndGreet();
  v1::ConnectResponse start = StartRank("hello;join;await_commit;running;sleep");
  v1::LimitSpec& limits =
      *start.mutable_start_rank()->mutable_job()->mutable_spec()->mutable_limits();
  limits.set_stop_after_disconnect_seconds(0);
  limits.set_grace_period_seconds(0);
  coordinator_->Send(start);
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForReport(v1::Report::kRunning);
  RestartCoordinator({});
  const auto failure = WaitForReport(v1::Report::kFailure);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->failure().cause(), v1::FAILURE_CAUSE_ORPHANED);
  EXPECT_THAT(failure->failure().message(), HasSubstr("stopAfterDisconnectSeconds"));
  EXPECT_NE(WaitForExit().signal(), 0);
}

TEST_F(DaemonTest, ReportsOfThePreviousLifeAreDelivered) {
  options_.flush_timeout = absl::ZeroDuration();
  StartAndGreet();
  coordinator_->SetAcknowledge(false);
  coordinator_->Send(StartRank("hello;err gone;exit 4"));
  const v1::RankExited first = WaitForExit();
  const std::string incarnation = daemon_->incarnation();
  RestartCoordinator({.acknowledge = false});
  StopDaemon();

  StartCoordinator({});
  StartDaemon();
  EXPECT_NE(daemon_->incarnation(), incarnation);
  const v1::RankExited again = WaitForExit();
  EXPECT_EQ(again.exit_code(), 4);
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
}

// Not the leader of a group, so the daemon's SIGKILL to the group misses it, as one that the kernel
// holds would not die of it.
TEST_F(DaemonTest, ALeftoverThatDiesLaterMakesTheWorkerPlaceableAgain) {
  options_.leftover_wait = absl::Milliseconds(50);
  options_.leftover_poll = absl::Milliseconds(20);
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  RankMarker marker;
  marker.mutable_rank()->set_pid(pid);
  marker.mutable_rank()->set_step(7);
  *marker.mutable_rank()->mutable_key() = StartRank("").start_rank().key();
  marker.set_start_ticks(ProcessStartTicks(pid).value());
  const std::string path = dir_.path() + "/w0/rank";
  ASSERT_TRUE(MakeDirectories(dir_.path() + "/w0").ok());
  ASSERT_TRUE(WriteFileAtomically(path, marker.SerializeAsString()).ok());

  EXPECT_THAT(StartAndGreet().unplaceable_reason(), HasSubstr(absl::StrCat("process ", pid)));
  ::kill(pid, SIGKILL);
  // Nobody reaps it: a zombie is gone too.
  EXPECT_EQ(WaitForExit().last_step(), 7);
  EXPECT_TRUE(coordinator_->WaitForMessage([](const auto& m) {
    return m.has_heartbeat() && m.heartbeat().unplaceable_reason().empty();
  }));
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(DaemonTest, AStopSavesFlushesAndSaysGoodbye) {
  StartAndGreet();
  coordinator_->Send(
      StartRank("hello;join;await_commit;running;steps 6;await_stop;checkpoint_done 6"));
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForReport(v1::Report::kStep);
  StopDaemon();
  EXPECT_TRUE(status_.ok());
  const Received received = coordinator_->received();
  EXPECT_EQ(WaitForExit().checkpoint_step(), 6);
  ASSERT_TRUE(received.back().has_goodbye());
  EXPECT_EQ(received.back().goodbye().reason(), "test");
  EXPECT_TRUE(std::ranges::any_of(received, [](const auto& m) {
    return absl::StrContains(m.heartbeat().unplaceable_reason(), "shutting down");
  }));
}

TEST_F(DaemonTest, AReplacedIncarnationKillsItsRankAndEnds) {
  StartAndGreet();
  coordinator_->Send(StartRank("ignore_term;hello;join;sleep"));
  WaitForReport(v1::Report::kJoined);
  RestartCoordinator({.refuse = {grpc::StatusCode::ABORTED, "incarnation b replaced a"}});
  thread_.join();
  EXPECT_TRUE(absl::IsAborted(status_));
  EXPECT_FALSE(daemon_->Snapshot().rank_active());
  EXPECT_EQ(daemon_->Snapshot().trainer_exits().at("stopped"), 1);
}

TEST_F(DaemonTest, ItWaitsForACoordinatorThatRefusesOrIsNotThereYet) {
  RestartCoordinator({.refuse = {grpc::StatusCode::ALREADY_EXISTS, "another w0"}});
  StartDaemon();
  const int port = coordinator_->port();
  coordinator_.reset();
  coordinator_ = std::make_unique<FakeCoordinator>(FakeCoordinator::Options{.port = port});
  EXPECT_TRUE(coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); }));
}

}  // namespace
}  // namespace fsdp::daemon

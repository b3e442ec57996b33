// The daemon of one device with a fake coordinator over real gRPC and a scripted trainer process.

#include "worker/daemon/daemon.h"

#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/fake_coordinator.h"
#include "tests/unit/worker/daemon/temp_dir.h"

namespace fsdp::daemon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using Received = FakeCoordinator::Received;

bool IsReport(const v1::ConnectRequest& request, v1::Report::BodyCase body) {
  return request.has_report() && request.report().body_case() == body;
}

// The reports received, each once, by sequence.
std::map<std::int64_t, v1::Report> UniqueReports(const Received& received) {
  std::map<std::int64_t, v1::Report> reports;
  for (const v1::ConnectRequest& request : received) {
    if (request.has_report()) reports.emplace(request.report().sequence(), request.report());
  }
  return reports;
}

std::vector<std::string> LogLines(const Received& received) {
  std::vector<std::string> lines;
  for (const auto& [sequence, report] : UniqueReports(received)) {
    for (const v1::LogEntry& entry : report.logs().entries()) lines.push_back(entry.text());
  }
  return lines;
}

v1::ConnectResponse StartRank(const std::string& script, std::int64_t epoch = 1) {
  v1::ConnectResponse response;
  v1::StartRank& start = *response.mutable_start_rank();
  start.mutable_key()->set_job("jobs/test-1");
  start.mutable_key()->set_attempt(1);
  start.mutable_key()->set_epoch(epoch);
  start.mutable_key()->set_rank(2);
  start.set_world_size(3);
  start.set_local_world_size(1);
  v1::JobSpec& spec = *start.mutable_job()->mutable_spec();
  (*spec.mutable_env())["FSDP_FAKE_SCRIPT"] = script;
  return response;
}

// One GPU with a process of somebody else's.
class BusyNvml : public Nvml {
 public:
  [[nodiscard]] int device_count() const override { return 1; }
  absl::StatusOr<v1::DeviceInfo> Describe(int index) const override {
    v1::DeviceInfo device;
    device.set_type(v1::DEVICE_TYPE_CUDA);
    device.set_index(index);
    device.set_uuid("GPU-busy");
    device.set_memory_bytes(std::int64_t{80} << 30);
    device.set_memory_used_bytes(std::int64_t{3} << 30);
    return device;
  }
  absl::StatusOr<std::vector<Process>> Processes(int /*index*/) const override {
    return std::vector<Process>{{.pid = 77, .used_bytes = std::int64_t{2} << 30}};
  }
};

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.name = "w0";
    options_.state_dir = dir_.path();
    options_.device = CpuSlot(0, 1);
    options_.trainer = FSDP_BINARY_DIR "/fake_trainer";
    options_.metrics_address = "127.0.0.1:9";
    options_.flush_timeout = absl::Seconds(10);
    options_.supervisor.cpu_threads = 1;
    options_.supervisor.default_grace = absl::Milliseconds(200);
    options_.agent.backoff_initial = absl::Milliseconds(5);
    options_.agent.backoff_max = absl::Milliseconds(50);
    StartCoordinator({});
  }
  void TearDown() override { StopDaemon(); }

  void StartCoordinator(FakeCoordinator::Options options) {
    coordinator_.reset();
    coordinator_ = std::make_unique<FakeCoordinator>(options);
    options_.agent.coordinator = coordinator_->address();
  }
  // On the port of the one before, knowing what that one knew.
  void RestartCoordinator(FakeCoordinator::Options options) {
    options.port = coordinator_->port();
    options.durable_sequence = coordinator_->durable_sequence();
    StartCoordinator(options);
  }

  void StartDaemon() {
    daemon_ = Daemon::Create(options_, nullptr).value();
    thread_ = std::thread([this] { status_ = daemon_->Run(); });
  }
  void StopDaemon() {
    if (!thread_.joinable()) return;
    daemon_->RequestStop("test");
    thread_.join();
    daemon_.reset();
  }

  // What it showed at its end.
  DeviceSnapshot StopAndLook() {
    daemon_->RequestStop("test");
    thread_.join();
    return daemon_->Snapshot();
  }

  v1::WorkerHello StartAndGreet() {
    StartDaemon();
    return coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); })
        .value_or(v1::ConnectRequest())
        .hello();
  }

  std::optional<v1::Report> WaitForReport(v1::Report::BodyCase body) {
    const auto found =
        coordinator_->WaitForMessage([&](const auto& m) { return IsReport(m, body); });
    return found ? std::optional(found->report()) : std::nullopt;
  }
  bool WaitForLine(const std::string& text) {
    return coordinator_->WaitFor([&](const Received& received) {
      for (const std::string& line : LogLines(received)) {
        if (absl::StrContains(line, text)) return true;
      }
      return false;
    });
  }
  v1::RankExited WaitForExit() {
    const auto report = WaitForReport(v1::Report::kExited);
    EXPECT_TRUE(report);
    return report.value_or(v1::Report()).exited();
  }
  void SendCommit(std::int64_t epoch = 1) {
    v1::ConnectResponse response;
    *response.mutable_commit_epoch()->mutable_key() = StartRank("", epoch).start_rank().key();
    coordinator_->Send(response);
  }
  void SendStop(v1::StopMode mode, double grace_seconds, std::int64_t epoch = 1) {
    v1::ConnectResponse response;
    *response.mutable_stop_rank()->mutable_key() = StartRank("", epoch).start_rank().key();
    response.mutable_stop_rank()->set_mode(mode);
    response.mutable_stop_rank()->set_grace_seconds(grace_seconds);
    response.mutable_stop_rank()->set_reason("the test says so");
    coordinator_->Send(response);
  }

  TempDir dir_;
  Daemon::Options options_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
  absl::Status status_;
};

TEST_F(DaemonTest, TheHelloSaysWhoItIs) {
  const v1::WorkerHello hello = StartAndGreet();
  EXPECT_EQ(hello.worker(), "w0");
  EXPECT_EQ(hello.incarnation().size(), 16u);
  EXPECT_EQ(hello.protocol_version(), 1);
  EXPECT_EQ(hello.device().type(), v1::DEVICE_TYPE_CPU);
  EXPECT_GT(hello.device().memory_bytes(), 0);
  EXPECT_EQ(hello.rank_address(), "127.0.0.1");
  EXPECT_EQ(hello.metrics_address(), "127.0.0.1:9");
  EXPECT_FALSE(hello.has_running());
  EXPECT_EQ(hello.unplaceable_reason(), "");
}

TEST_F(DaemonTest, ADeviceThatOthersUseIsUnplaceableUnlessShared) {
  options_.device = BusyNvml().Describe(0).value();
  const auto greet = [this] {
    daemon_ = Daemon::Create(options_, std::make_unique<BusyNvml>()).value();
    thread_ = std::thread([this] { status_ = daemon_->Run(); });
    const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
    StopDaemon();
    return hello.value_or(v1::ConnectRequest()).hello();
  };
  const v1::WorkerHello busy = greet();
  EXPECT_EQ(busy.device().uuid(), "GPU-busy");
  EXPECT_THAT(busy.unplaceable_reason(), HasSubstr("pid 77 has 2048 MiB"));
  StartCoordinator({});
  options_.share_device = true;
  EXPECT_EQ(greet().unplaceable_reason(), "");
}

TEST_F(DaemonTest, AStoppedTrainerIsDiagnosed) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;sleep"));
  const auto joined = WaitForReport(v1::Report::kJoined);
  const pid_t trainer = joined->joined().pid();
  ::kill(trainer, SIGSTOP);
  // The signal takes effect in its own time.
  while (ProcessState(trainer).value() != 'T') std::this_thread::yield();
  v1::ConnectResponse dump;
  *dump.mutable_dump_diagnostics()->mutable_key() = joined->key();
  coordinator_->Send(dump);
  const auto notice = WaitForReport(v1::Report::kNotice);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->notice().type(), "TRAINER_STUCK");
  EXPECT_THAT(notice->notice().message(), HasSubstr("SIGSTOP"));
}

TEST_F(DaemonTest, AJobFromStartToDone) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;steps 5;out a line;done"));
  const auto joined = WaitForReport(v1::Report::kJoined);
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->key().rank(), 2);
  EXPECT_EQ(joined->joined().plan_hash(), 42u);
  EXPECT_GT(joined->joined().pid(), 0);
  SendCommit();
  const v1::RankExited exited = WaitForExit();
  EXPECT_EQ(exited.exit_code(), 0);
  EXPECT_EQ(exited.signal(), 0);
  EXPECT_TRUE(exited.finished());
  EXPECT_EQ(exited.last_step(), 5);
  EXPECT_EQ(exited.result().steps(), 5);

  std::vector<std::int64_t> steps;
  for (const auto& [sequence, report] : UniqueReports(coordinator_->received())) {
    if (!report.has_step()) continue;
    steps.push_back(report.step().metrics().step());
    EXPECT_EQ(report.step().metrics().epoch(), 1);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_THAT(LogLines(coordinator_->received()), Contains("a line"));
  EXPECT_THAT(LogLines(coordinator_->received()), Contains("start world 3 threads 1"));
  // The exit comes after everything else.
  EXPECT_TRUE(UniqueReports(coordinator_->received()).rbegin()->second.has_exited());
}

TEST_F(DaemonTest, AnErrorExitHasItsCodeAndTheLastLinesOfStderr) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;out not this;err first;err the reason;exit 3"));
  const v1::RankExited exited = WaitForExit();
  EXPECT_EQ(exited.exit_code(), 3);
  EXPECT_FALSE(exited.finished());
  EXPECT_THAT(exited.last_lines(), ::testing::ElementsAre("first", "the reason"));
}

TEST_F(DaemonTest, DeathByASignalIsToldAsSuch) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;err about to crash;signal 11"));
  const v1::RankExited exited = WaitForExit();
  EXPECT_EQ(exited.signal(), SIGSEGV);
  EXPECT_THAT(exited.last_lines(), Contains("about to crash"));
}

TEST_F(DaemonTest, AMissingTrainerIsAnExit127ThatNamesIt) {
  options_.trainer = "/nonexistent/fsdp-trainer";
  StartAndGreet();
  coordinator_->Send(StartRank("hello"));
  const v1::RankExited exited = WaitForExit();
  EXPECT_EQ(exited.exit_code(), 127);
  ASSERT_EQ(exited.last_lines_size(), 1);
  EXPECT_THAT(exited.last_lines(0), HasSubstr("/nonexistent/fsdp-trainer"));
}

TEST_F(DaemonTest, HeartbeatsCarryTheRanksPulse) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;steps 2;pulse 9 all_gather;sleep"));
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  const auto beat = coordinator_->WaitForMessage([](const auto& m) {
    return m.heartbeat().rank().state() == v1::RANK_STATE_RUNNING &&
           m.heartbeat().rank().collective_started() == 9;
  });
  ASSERT_TRUE(beat);
  EXPECT_EQ(beat->heartbeat().rank().key().epoch(), 1);
  EXPECT_EQ(beat->heartbeat().rank().step(), 2);
  EXPECT_EQ(beat->heartbeat().rank().collective(), "all_gather");
  // The trainer says nothing more: the collective is taken to be pending still.
  const auto later = coordinator_->WaitForMessage(
      [](const auto& m) { return m.heartbeat().rank().collective_pending_seconds() > 0.1; });
  EXPECT_TRUE(later);
}

TEST_F(DaemonTest, TerminateIsSigtermThenSigkill) {
  StartAndGreet();
  coordinator_->Send(StartRank("ignore_term;hello;join;await_stop;sleep"));
  WaitForReport(v1::Report::kJoined);
  SendStop(v1::STOP_MODE_TERMINATE, 0.2);
  EXPECT_EQ(WaitForExit().signal(), SIGKILL);
  EXPECT_THAT(LogLines(coordinator_->received()), Contains("stop STOP_MODE_TERMINATE"));
}

TEST_F(DaemonTest, AStoppedTrainerIsKilledWhenTheGraceIsOver) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;sleep"));
  const auto joined = WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForReport(v1::Report::kRunning);
  ::kill(joined->joined().pid(), SIGSTOP);
  SendStop(v1::STOP_MODE_CHECKPOINT, 0.2);
  EXPECT_EQ(WaitForExit().signal(), SIGKILL);
}

TEST_F(DaemonTest, ACheckpointStopSaysWhatWasSaved) {
  StartAndGreet();
  coordinator_->Send(
      StartRank("hello;join;await_commit;running;steps 4;await_stop;checkpoint_done 4"));
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForReport(v1::Report::kStep);
  SendStop(v1::STOP_MODE_CHECKPOINT, 20);
  const v1::RankExited exited = WaitForExit();
  EXPECT_EQ(exited.exit_code(), 0);
  EXPECT_FALSE(exited.finished());
  EXPECT_EQ(exited.checkpoint_step(), 4);
}

TEST_F(DaemonTest, RendezvousGoesThrough) {
  StartAndGreet();
  coordinator_->Send(StartRank("put a 1;get b;exit 0"));
  const auto put =
      coordinator_->WaitForMessage([](const auto& m) { return m.has_rendezvous_put(); });
  ASSERT_TRUE(put);
  EXPECT_EQ(put->rendezvous_put().value(), "1");
  EXPECT_EQ(put->rendezvous_put().key().epoch(), 1);
  ASSERT_TRUE(coordinator_->WaitForMessage([](const auto& m) { return m.has_rendezvous_get(); }));
  v1::ConnectResponse value;
  *value.mutable_rendezvous_value()->mutable_key() = put->rendezvous_put().key();
  value.mutable_rendezvous_value()->set_name("b");
  value.mutable_rendezvous_value()->set_value("two");
  coordinator_->Send(value);
  WaitForExit();
  EXPECT_THAT(LogLines(coordinator_->received()), Contains("got b two"));
}

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

TEST_F(DaemonTest, AnotherTrainerProtocolIsRefusedWithTheRemedy) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello_version 99;sleep"));
  const auto failure = WaitForReport(v1::Report::kFailure);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->failure().message(), HasSubstr("99"));
  EXPECT_EQ(WaitForExit().signal(), SIGKILL);
}

TEST_F(DaemonTest, GarbageFromTheTrainerEndsIt) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;garbage;pause"));
  const auto failure = WaitForReport(v1::Report::kFailure);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->failure().message(), HasSubstr("protocol"));
  EXPECT_EQ(WaitForExit().signal(), SIGKILL);
  EXPECT_EQ(StopAndLook().trainer_exits().at("signal"), 1);
}

TEST_F(DaemonTest, ALongLineArrivesInMarkedPieces) {
  StartAndGreet();
  coordinator_->Send(StartRank("out_bytes 40000;exit 0"));
  WaitForExit();
  std::vector<std::pair<std::size_t, bool>> pieces;
  for (const auto& [sequence, report] : UniqueReports(coordinator_->received())) {
    for (const v1::LogEntry& entry : report.logs().entries()) {
      if (entry.stream() != v1::LOG_STREAM_STDOUT) continue;
      pieces.emplace_back(entry.text().size(), entry.continued());
      EXPECT_EQ(entry.rank(), 2);
      EXPECT_EQ(entry.epoch(), 1);
    }
  }
  EXPECT_EQ(pieces, (std::vector<std::pair<std::size_t, bool>>{
                        {16384, true}, {16384, true}, {7232, false}}));
}

TEST_F(DaemonTest, AJobForAnotherKindOfDeviceIsRefused) {
  StartAndGreet();
  v1::ConnectResponse start = StartRank("exit 0");
  start.mutable_start_rank()->mutable_job()->mutable_spec()->mutable_resources()->set_device(
      v1::DEVICE_TYPE_CUDA);
  coordinator_->Send(start);
  EXPECT_EQ(WaitForExit().exit_code(), 127);
  EXPECT_THAT(WaitForReport(v1::Report::kFailure)->failure().message(), HasSubstr("CUDA"));
}

TEST_F(DaemonTest, TheSnapshotShowsTheLastStep) {
  StartAndGreet();
  coordinator_->Send(StartRank("hello;join;await_commit;running;steps 4;done"));
  WaitForReport(v1::Report::kJoined);
  SendCommit();
  WaitForExit();
  EXPECT_TRUE(daemon_->Snapshot().connected());
  const DeviceSnapshot snapshot = StopAndLook();
  EXPECT_EQ(snapshot.worker(), "w0");
  ASSERT_EQ(snapshot.ranks_size(), 1);
  EXPECT_EQ(snapshot.ranks(0).last().metrics().loss(), 2.5);
  EXPECT_EQ(snapshot.ranks(0).num_steps(), 4);
  EXPECT_EQ(snapshot.ranks(0).state(), v1::RANK_STATE_EXITED);
}

TEST(WorkerNameTest, BadNamesAreRefused) {
  EXPECT_TRUE(ValidateWorkerName("node-1.example_com-cuda-0").ok());
  for (const std::string& bad : {std::string(), std::string("-x"), std::string("a/b"),
                                 std::string(64, 'a'), std::string("a b")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ValidateWorkerName(bad))) << bad;
  }
}

TEST(TrainerEnvironmentTest, OnlyAllowedNamesGoThrough) {
  std::string entries[] = {"PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "NCCL_DEBUG=INFO",
                           "OMP_NUM_THREADS=2", "no_equals"};
  std::vector<char*> ours;
  for (std::string& entry : entries) ours.push_back(entry.data());
  ours.push_back(nullptr);
  v1::TrainingJob job;
  (*job.mutable_spec()->mutable_env())["NCCL_DEBUG"] = "WARN";
  (*job.mutable_spec()->mutable_env())["LD_PRELOAD"] = "evil.so";
  v1::DeviceInfo device;
  device.set_type(v1::DEVICE_TYPE_CUDA);
  device.set_uuid("GPU-1234");
  EXPECT_THAT(TrainerEnvironment(ours.data(), job, device),
              ::testing::ElementsAre(::testing::Pair("CUDA_VISIBLE_DEVICES", "GPU-1234"),
                                     ::testing::Pair("NCCL_DEBUG", "WARN"),
                                     ::testing::Pair("OMP_NUM_THREADS", "2"),
                                     ::testing::Pair("PATH", "/bin")));
}

TEST(BackoffTest, GrowsToTheMaximumWithJitterAndStartsAgain) {
  Backoff backoff(absl::Milliseconds(50), absl::Seconds(2), 7);
  absl::Duration bound = absl::Milliseconds(50);
  for (int i = 0; i < 10; ++i) {
    const absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, bound / 2);
    EXPECT_LE(delay, bound);
    bound = std::min(bound * 2, absl::Seconds(2));
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(50));
}

}  // namespace
}  // namespace fsdp::daemon

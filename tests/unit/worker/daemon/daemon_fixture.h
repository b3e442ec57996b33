#ifndef FSDPCTL_TESTS_UNIT_WORKER_DAEMON_DAEMON_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_WORKER_DAEMON_DAEMON_FIXTURE_H_

// The daemon of one device with a fake coordinator over real gRPC and a scripted trainer process.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/fake_coordinator.h"
#include "tests/unit/worker/daemon/temp_dir.h"
#include "worker/daemon/daemon.h"

namespace fsdp::daemon {

using Received = FakeCoordinator::Received;

inline bool IsReport(const v1::ConnectRequest& request, v1::Report::BodyCase body) {
  return request.has_report() && request.report().body_case() == body;
}

// The reports received, each once, by sequence.
inline std::map<std::int64_t, v1::Report> UniqueReports(const Received& received) {
  std::map<std::int64_t, v1::Report> reports;
  for (const v1::ConnectRequest& request : received) {
    if (request.has_report()) reports.emplace(request.report().sequence(), request.report());
  }
  return reports;
}

inline std::vector<std::string> LogLines(const Received& received) {
  std::vector<std::string> lines;
  for (const auto& [sequence, report] : UniqueReports(received)) {
    for (const v1::LogEntry& entry : report.logs().entries()) lines.push_back(entry.text());
  }
  return lines;
}

inline v1::ConnectResponse StartRank(const std::string& script, std::int64_t epoch = 1) {
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

  void StartCoordinator(const FakeCoordinator::Options& options) {
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

}  // namespace fsdp::daemon

#endif  // FSDPCTL_TESTS_UNIT_WORKER_DAEMON_DAEMON_FIXTURE_H_

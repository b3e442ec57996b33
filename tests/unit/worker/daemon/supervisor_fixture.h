#ifndef FSDPCTL_TESTS_UNIT_WORKER_DAEMON_SUPERVISOR_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_WORKER_DAEMON_SUPERVISOR_FIXTURE_H_

// A supervisor with time and trainers under the test's control.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/fake_clock.h"
#include "worker/daemon/supervisor.h"

namespace fsdp::daemon {

// What the supervisor did to a trainer.
struct TrainerLog {
  std::vector<v1::DaemonToTrainer> messages;
  std::vector<int> signals;
  absl::Status send_status;
};

class FakeTrainer : public Trainer {
 public:
  explicit FakeTrainer(TrainerLog* log) : log_(*log) {}
  absl::Status Send(const v1::DaemonToTrainer& message) override {
    if (log_.send_status.ok()) log_.messages.push_back(message);
    return log_.send_status;
  }
  void Signal(int signal) override { log_.signals.push_back(signal); }
  [[nodiscard]] pid_t pid() const override { return 4242; }

 private:
  TrainerLog& log_;
};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() { MakeSupervisor({.cpu_threads = 3}); }

  void MakeSupervisor(Supervisor::Options options) {
    Supervisor::Effects effects;
    effects.report = [this](v1::Report report) {
      reports_.push_back(std::move(report));
      return static_cast<std::int64_t>(reports_.size());
    };
    effects.send = [this](v1::ConnectRequest request) { sent_.push_back(std::move(request)); };
    effects.launch =
        [this](const v1::StartRank& start) -> absl::StatusOr<std::unique_ptr<Trainer>> {
      launched_.push_back(start);
      trainers_.push_back(std::make_unique<TrainerLog>());
      return std::make_unique<FakeTrainer>(trainers_.back().get());
    };
    effects.mark = [this](const std::optional<v1::RunningRank>& rank) {
      marks_.push_back(rank.has_value());
    };
    supervisor_ =
        std::make_unique<Supervisor>(std::move(options), effects, clock_, pulses_, metrics_);
    v1::Welcome welcome;
    welcome.set_keep_running_rank(true);
    supervisor_->OnWelcome(welcome);
  }

  static v1::EpochKey Key(std::int64_t epoch) {
    v1::EpochKey key;
    key.set_job("jobs/a");
    key.set_attempt(1);
    key.set_epoch(epoch);
    key.set_rank(0);
    return key;
  }
  void Start(std::int64_t epoch, v1::TrainingJob job = {}) {
    v1::ConnectResponse command;
    *command.mutable_start_rank()->mutable_key() = Key(epoch);
    *command.mutable_start_rank()->mutable_job() = std::move(job);
    supervisor_->OnCommand(command);
  }
  void Stop(v1::StopMode mode, double grace_seconds, std::int64_t epoch = 1) {
    v1::ConnectResponse command;
    *command.mutable_stop_rank()->mutable_key() = Key(epoch);
    command.mutable_stop_rank()->set_mode(mode);
    command.mutable_stop_rank()->set_grace_seconds(grace_seconds);
    supervisor_->OnCommand(command);
  }
  void Commit(std::int64_t epoch) {
    v1::ConnectResponse command;
    *command.mutable_commit_epoch()->mutable_key() = Key(epoch);
    supervisor_->OnCommand(command);
  }
  // To the state RUNNING.
  void StartRunning(std::int64_t epoch, v1::TrainingJob job = {}) {
    Start(epoch, std::move(job));
    v1::TrainerToDaemon message;
    message.mutable_running();
    supervisor_->OnTrainerMessage(message);
  }
  void Advance(absl::Duration by) {
    clock_.Advance(by);
    supervisor_->Tick();
  }
  TrainerLog& trainer() { return *trainers_.back(); }
  std::vector<v1::Report> ReportsOf(v1::Report::BodyCase body) {
    std::vector<v1::Report> found;
    for (const v1::Report& report : reports_) {
      if (report.body_case() == body) found.push_back(report);
    }
    return found;
  }

  FakeClock clock_;
  PulseBoard pulses_{clock_};
  RankMetrics metrics_{{}, clock_};
  std::vector<v1::Report> reports_;
  std::vector<v1::ConnectRequest> sent_;
  std::vector<v1::StartRank> launched_;
  std::vector<std::unique_ptr<TrainerLog>> trainers_;
  std::vector<bool> marks_;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_TESTS_UNIT_WORKER_DAEMON_SUPERVISOR_FIXTURE_H_

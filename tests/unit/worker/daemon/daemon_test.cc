// The daemon and the ranks that it runs: start, stop, exit, logs, pulses.

#include "worker/daemon/daemon.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/daemon_fixture.h"

namespace fsdp::daemon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// One GPU with a process of somebody else's.
class BusyNvml : public Nvml {
 public:
  // In some containers the driver refuses to name processes.
  explicit BusyNvml(bool names_processes = true) : names_processes_(names_processes) {}
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
    if (!names_processes_) return absl::InternalError("Not Supported");
    return std::vector<Process>{{.pid = 77, .used_bytes = std::int64_t{2} << 30}};
  }
  absl::StatusOr<DeviceReading> ReadHealth(int index) const override {
    DeviceReading reading;
    reading.power_watts = 600 + index;
    reading.throttle_reasons = 0x4;
    // The first look is over, and what it told is there.
    if (++num_looks_ == 2) looked_.set_value();
    return reading;
  }
  std::future<void> Looked() { return looked_.get_future(); }

 private:
  const bool names_processes_;
  mutable int num_looks_ = 0;
  mutable std::promise<void> looked_;
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
  const auto greet = [this](bool names_processes = true) {
    daemon_ = Daemon::Create(options_, std::make_unique<BusyNvml>(names_processes)).value();
    thread_ = std::thread([this] { status_ = daemon_->Run(); });
    const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
    StopDaemon();
    return hello.value_or(v1::ConnectRequest()).hello();
  };
  const v1::WorkerHello busy = greet();
  EXPECT_EQ(busy.device().uuid(), "GPU-busy");
  EXPECT_THAT(busy.unplaceable_reason(), HasSubstr("pid 77 has 2048 MiB"));
  StartCoordinator({});
  EXPECT_THAT(greet(/*names_processes=*/false).unplaceable_reason(),
              HasSubstr("3072 MiB of cuda-0 are in use by others; end them"));
  StartCoordinator({});
  options_.share_device = true;
  EXPECT_EQ(greet().unplaceable_reason(), "");
}

TEST_F(DaemonTest, TheHealthOfItsDeviceIsInItsSnapshot) {
  auto nvml = std::make_unique<BusyNvml>();
  options_.device = nvml->Describe(0).value();
  options_.health_poll = absl::Milliseconds(1);
  std::future<void> looked = nvml->Looked();
  daemon_ = Daemon::Create(options_, std::move(nvml)).value();
  EXPECT_FALSE(daemon_->Snapshot().health().has_power_watts());
  thread_ = std::thread([this] { status_ = daemon_->Run(); });
  looked.wait();
  const DeviceHealth health = daemon_->Snapshot().health();
  EXPECT_EQ(health.power_watts(), 600);
  EXPECT_EQ(health.throttled_seconds().count("power"), 1U);
  EXPECT_FALSE(health.has_temperature_celsius());
  StopDaemon();
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
  EXPECT_EQ(notice->notice().message(),
            absl::StrFormat("rank %d's process is stopped (state T): pid %d, by SIGSTOP or a "
                            "debugger",
                            joined->key().rank(), trainer));
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
  EXPECT_THAT(TrainerEnvironment(ours.data(), job, device, JobNetwork{}),
              ::testing::ElementsAre(::testing::Pair("CUDA_VISIBLE_DEVICES", "GPU-1234"),
                                     ::testing::Pair("GLOO_SOCKET_IFNAME", "lo"),
                                     ::testing::Pair("NCCL_DEBUG", "WARN"),
                                     ::testing::Pair("NCCL_SOCKET_FAMILY", "AF_INET"),
                                     ::testing::Pair("NCCL_SOCKET_IFNAME", "=lo"),
                                     ::testing::Pair("OMP_NUM_THREADS", "2"),
                                     ::testing::Pair("PATH", "/bin")));
}

TEST(TrainerEnvironmentTest, WhoNamesTheInterfaceThemselvesKeepsIt) {
  std::string entries[] = {"NCCL_SOCKET_IFNAME=ib0"};
  char* ours[] = {entries[0].data(), nullptr};
  v1::TrainingJob job;
  (*job.mutable_spec()->mutable_env())["NCCL_SOCKET_FAMILY"] = "AF_INET";
  const auto environment =
      TrainerEnvironment(ours, job, v1::DeviceInfo(), JobNetwork{"eth1", "fd00::4", false});
  EXPECT_EQ(environment.at("NCCL_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(environment.at("NCCL_SOCKET_FAMILY"), "AF_INET");
  EXPECT_EQ(environment.at("GLOO_SOCKET_IFNAME"), "eth1");
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

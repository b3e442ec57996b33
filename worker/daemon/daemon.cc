#include "worker/daemon/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "proto/support/spec_paths.h"
#include "proto/support/status.h"
#include "worker/daemon/checkpoint_files.h"
#include "worker/daemon/event_queue.h"
#include "worker/daemon/files.h"
#include "worker/daemon/pulse_board.h"
#include "worker/daemon/timestamps.h"

namespace fsdp::daemon {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
// How long a driver may take to free a dead process's memory.
constexpr absl::Duration kMemoryReleaseTime = absl::Seconds(3);

// Kills the process that `marker` names. True: it is gone.
bool KillLeftover(const RankMarker& marker) {
  const pid_t pid = marker.rank().pid();
  if (pid <= 0 || !ProcessLives(pid, marker.start_ticks())) return true;
  LOG_WARNING("killing the trainer of the daemon's previous life, pid %d", pid);
  ::kill(-pid, SIGKILL);
  return false;
}

// Waits for the process that `marker` names to be gone, killing it. False: it is still there.
bool EndLeftover(const RankMarker& marker, absl::Duration wait) {
  const MonotonicTime give_up = Clock::Real().Now() + wait;
  while (!KillLeftover(marker)) {
    if (Clock::Real().Now() >= give_up) return false;
    std::this_thread::sleep_for(kTick / 2);
  }
  return true;
}

}  // namespace

std::string MakeIncarnation() {
  std::random_device random;
  const std::uint64_t value = (std::uint64_t{random()} << 32) | random();
  return absl::StrFormat("%016x", value);
}

absl::Status ValidateWorkerName(const std::string& name) {
  const bool first_ok = !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) != 0;
  const bool chars_ok =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
      std::string::npos;
  if (first_ok && chars_ok && name.size() <= 63) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "worker name '%s': use 1-63 of [a-zA-Z0-9._-], starting with a letter or digit (--name)",
      name));
}

class Daemon::Impl final : public AgentDelegate, public TrainerObserver {
 public:
  Impl(Options options, PathRoots roots, std::unique_ptr<Nvml> nvml, std::unique_ptr<Spool> spool)
      : options_(std::move(options)),
        roots_(std::move(roots)),
        nvml_(std::move(nvml)),
        spool_(std::move(spool)),
        marker_path_(absl::StrCat(options_.state_dir, "/", options_.name, "/rank")),
        pulses_(Clock::Real()),
        metrics_(options_.metrics, Clock::Real()),
        device_(options_.device),
        agent_(options_.agent, *spool_, *this),
        checkpoint_files_(ProfileDirectory(), roots_, [this](v1::FilePiece piece) {
          v1::ConnectRequest message;
          *message.mutable_file_piece() = std::move(piece);
          agent_.Send(std::move(message));
        }) {}

  ~Impl() override { Teardown(); }

  // --- Agent's threads ---
  v1::WorkerHello MakeHello() override {
    v1::WorkerHello hello;
    hello.set_worker(options_.name);
    hello.set_incarnation(incarnation_);
    hello.set_host(HostName());
    hello.set_metrics_address(options_.metrics_address);
    hello.set_rank_address(options_.network.address);
    if (const auto running = pulses_.running()) *hello.mutable_running() = *running;
    const std::lock_guard<std::mutex> lock(mutex_);
    *hello.mutable_device() = device_;
    hello.set_unplaceable_reason(UnplaceableReason());
    return hello;
  }

  v1::Heartbeat MakeHeartbeat() override {
    v1::Heartbeat heartbeat;
    if (const auto pulse = pulses_.pulse()) *heartbeat.mutable_rank() = *pulse;
    const std::lock_guard<std::mutex> lock(mutex_);
    *heartbeat.mutable_device() = device_;
    heartbeat.set_unplaceable_reason(UnplaceableReason());
    heartbeat.set_shutdown_reason(shutdown_reason_);
    return heartbeat;
  }

  void OnWelcome(const v1::Welcome& welcome) override {
    events_.Post([this, welcome] { supervisor_->OnWelcome(welcome); });
  }
  void OnCommand(v1::ConnectResponse command) override {
    if (command.has_clock_probe()) return AnswerProbe(command.clock_probe());
    if (command.has_read_file_piece()) {
      return checkpoint_files_.Read(std::move(*command.mutable_read_file_piece()));
    }
    events_.Post([this, command = std::move(command)] { supervisor_->OnCommand(command); });
  }
  void OnDisconnected(const absl::Status& status) override {
    (void)status;
    events_.Post([this] { supervisor_->OnDisconnected(); });
  }
  void OnReplaced(const absl::Status& status) override {
    events_.Post([this, status] {
      LOG_ERROR("this worker was replaced: %s", status.ToString());
      replaced_ = status;
      // Twice: at once, without a checkpoint, since the newer incarnation owns the device.
      supervisor_->BeginShutdown("replaced by a newer incarnation");
      supervisor_->BeginShutdown("replaced by a newer incarnation");
    });
  }

  // --- The trainer's reader thread ---
  void OnTrainerMessage(v1::TrainerToDaemon message) override {
    if (message.has_pulse()) return pulses_.SetPulse(message.pulse());
    events_.PostBounded(
        [this, message = std::move(message)] { supervisor_->OnTrainerMessage(message); });
  }
  void OnTrainerLine(v1::LogStream stream, std::string text, bool continued) override {
    events_.PostBounded([this, stream, text = std::move(text), continued] {
      supervisor_->OnTrainerLine(stream, text, continued);
    });
  }
  void OnTrainerLinkClosed(absl::Status status) override {
    events_.PostBounded([this, status] { supervisor_->OnTrainerLinkClosed(status); });
  }
  void OnTrainerExit(TrainerExit exit) override {
    events_.Post([this, exit] { supervisor_->OnTrainerExit(exit); });
  }

  // --- The core thread ---
  absl::Status Run() {
    supervisor_ = std::make_unique<Supervisor>(SupervisorOptions(), MakeEffects(), Clock::Real(),
                                               pulses_, metrics_);
    ReportLeftover();
    LookAtDevice();
    if (nvml_ != nullptr) watcher_ = std::thread([this] { WatchDevice(); });
    agent_.Start();
    while (!(stop_requested_ && supervisor_->idle()) && !(replaced_ && supervisor_->idle())) {
      events_.RunFor(kTick);
      supervisor_->Tick();
      LookAtLeftover();
      PublishStats();
    }
    agent_.Shutdown(stop_reason_, replaced_ ? absl::ZeroDuration() : options_.flush_timeout);
    Teardown();
    return replaced_.value_or(absl::OkStatus());
  }

  void RequestStop(const std::string& reason) {
    events_.Post([this, reason] {
      stop_requested_ = true;
      stop_reason_ = reason;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        shutdown_reason_ = reason;
      }
      agent_.BeatNow();
      supervisor_->BeginShutdown(reason);
    });
  }

  DeviceSnapshot Snapshot() const {
    DeviceSnapshot snapshot;
    snapshot.set_worker(options_.name);
    snapshot.set_pid(::getpid());
    snapshot.set_connected(agent_.connected());
    snapshot.set_num_connects(agent_.num_connects());
    for (RankSeries& series : metrics_.Snapshot()) *snapshot.add_ranks() = std::move(series);
    const Spool::Stats spool = spool_->stats();
    snapshot.set_spool_bytes(spool.num_bytes);
    snapshot.set_spool_reports(spool.num_reports);
    snapshot.set_spool_dropped_steps(spool.num_dropped_steps);
    snapshot.set_spool_dropped_logs(spool.num_dropped_logs);
    snapshot.set_spool_corrupt(spool.num_corrupt);
    snapshot.set_spool_write_errors(spool.num_write_errors);
    const std::lock_guard<std::mutex> lock(mutex_);
    snapshot.set_device(DeviceLabel(device_));
    snapshot.set_device_memory_bytes(device_.memory_bytes());
    if (device_.memory_used_bytes() > 0) {
      snapshot.set_device_memory_used_bytes(device_.memory_used_bytes());
    }
    *snapshot.mutable_health() = health_.health();
    snapshot.set_rank_active(rank_active_);
    snapshot.set_num_stale_commands(stats_.num_stale_commands);
    for (const auto& [reason, count] : stats_.trainer_exits) {
      (*snapshot.mutable_trainer_exits())[reason] = count;
    }
    return snapshot;
  }

  [[nodiscard]] const std::string& incarnation() const { return incarnation_; }

 private:
  // At once, on the thread that heard it.
  void AnswerProbe(const v1::ClockProbe& probe) {
    const auto now = [] { return absl::ToInt64Nanoseconds(Clock::Real().Now().since_start()); };
    v1::ConnectRequest message;
    v1::ClockAnswer& answer = *message.mutable_clock_answer();
    answer.set_sent_ns(probe.sent_ns());
    answer.set_received_ns(now());
    answer.set_answered_ns(now());
    agent_.Send(std::move(message));
  }

  std::string ProfileDirectory() const {
    return absl::StrCat(options_.state_dir, "/", options_.name, "/profiles");
  }

  Supervisor::Options SupervisorOptions() const {
    Supervisor::Options options = options_.supervisor;
    options.bind_address = options_.network.address;
    options.cache_dir = options_.state_dir + "/cache";
    options.share_device = options_.share_device;
    options.profile_dir = ProfileDirectory();
    return options;
  }

  Supervisor::Effects MakeEffects() {
    return {.report =
                [this](v1::Report report) {
                  const std::int64_t sequence = spool_->Append(std::move(report));
                  agent_.NotifySpool();
                  return sequence;
                },
            .send = [this](v1::ConnectRequest request) { agent_.Send(std::move(request)); },
            .launch = [this](const v1::StartRank& start) { return Launch(start); },
            .mark = [this](const std::optional<v1::RunningRank>& rank) { Mark(rank); }};
  }

  absl::StatusOr<std::unique_ptr<Trainer>> Launch(const v1::StartRank& start) {
    const v1::DeviceType wanted = start.job().spec().resources().device();
    if (wanted != v1::DEVICE_TYPE_UNSPECIFIED && wanted != options_.device.type()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the job needs a %s device, this worker has %s",
                          v1::DeviceType_Name(wanted), DeviceLabel(options_.device)));
    }
    for (const SpecPath& path : PathsOf(start.job())) RETURN_IF_ERROR(roots_.CheckOnDisk(path));
    RETURN_IF_ERROR(CheckPeers(options_.network, start));
    return StartTrainer({.path = options_.trainer,
                         .environment = TrainerEnvironment(environ, start.job(), options_.device,
                                                           options_.network)},
                        this);
  }

  // Remembers the rank on disk, so that the daemon's next life can report its end.
  void Mark(const std::optional<v1::RunningRank>& rank) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      rank_active_ = rank.has_value();
      idle_since_ = Clock::Real().Now();
    }
    agent_.BeatNow();
    if (!rank) {
      if (::unlink(marker_path_.c_str()) != 0 && errno != ENOENT) {
        LOG_ERROR("unlink(%s): %s", marker_path_, std::strerror(errno));
      }
      return;
    }
    RankMarker marker;
    *marker.mutable_rank() = *rank;
    marker.set_start_ticks(ProcessStartTicks(rank->pid()).value_or(0));
    const absl::Status written = WriteFileAtomically(marker_path_, marker.SerializeAsString());
    if (!written.ok()) LOG_ERROR("%s", written.message());
  }

  // A trainer dies with its daemon, and nobody was left to report it.
  void ReportLeftover() {
    const absl::StatusOr<std::string> bytes = ReadFile(marker_path_);
    RankMarker marker;
    if (!bytes.ok() || !marker.ParseFromString(*bytes)) return;
    if (EndLeftover(marker, options_.leftover_wait)) return ReportLeftoverEnd(marker);
    LOG_ERROR("the trainer of the daemon's previous life does not die, pid %d",
              marker.rank().pid());
    leftover_ = marker;
    next_leftover_look_ = Clock::Real().Now() + options_.leftover_poll;
    const std::lock_guard<std::mutex> lock(mutex_);
    leftover_reason_ = absl::StrCat("process ", marker.rank().pid(),
                                    " of an earlier rank has not died of SIGKILL yet; the worker "
                                    "waits for it; if it stays, restart the host");
  }

  // A process that the kernel held may go later.
  void LookAtLeftover() {
    if (!leftover_ || Clock::Real().Now() < next_leftover_look_) return;
    next_leftover_look_ = Clock::Real().Now() + options_.leftover_poll;
    if (!KillLeftover(*leftover_)) return;
    LOG_INFO("the trainer of the daemon's previous life is gone, pid %d", leftover_->rank().pid());
    ReportLeftoverEnd(*leftover_);
    leftover_.reset();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      leftover_reason_.clear();
      // The driver may still free its memory.
      if (!rank_active_) idle_since_ = Clock::Real().Now();
    }
    agent_.NotifySpool();
    agent_.BeatNow();
  }

  void ReportLeftoverEnd(const RankMarker& marker) {
    v1::Report report;
    *report.mutable_key() = marker.rank().key();
    *report.mutable_time() = ToTimestamp(absl::Now());
    report.mutable_exited()->set_signal(SIGKILL);
    report.mutable_exited()->set_last_step(marker.rank().step());
    report.mutable_exited()->add_last_lines(
        "the worker daemon died, and the trainer was killed with it");
    spool_->Append(std::move(report));
    // Since then the file may have become that of a rank of this life.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!rank_active_) ::unlink(marker_path_.c_str());
  }

  // A thread of its own: a driver with a sick GPU may let its callers wait for minutes.
  void WatchDevice() {
    const absl::Duration poll = std::min(options_.device_poll, options_.health_poll);
    MonotonicTime next_look = Clock::Real().Now() + options_.device_poll;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!closing_) {
      wake_watcher_.wait_for(lock, absl::ToChronoNanoseconds(poll), [this] { return closing_; });
      lock.unlock();
      ReadHealth();
      if (Clock::Real().Now() >= next_look) {
        LookAtDevice();
        next_look = Clock::Real().Now() + options_.device_poll;
      }
      lock.lock();
    }
  }

  void ReadHealth() {
    if (options_.device.type() != v1::DEVICE_TYPE_CUDA) return;
    const absl::StatusOr<DeviceReading> reading = nvml_->ReadHealth(options_.device.index());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reading.ok()) {
      health_.Update(*reading, Clock::Real().Now());
    } else {
      health_.Miss(Clock::Real().Now());
    }
  }

  // Memory in use, and whether anybody else uses an idle device.
  void LookAtDevice() {
    std::string reason;
    v1::DeviceInfo device = options_.device;
    const bool was_idle = IsSettled();
    if (nvml_ != nullptr && device.type() == v1::DEVICE_TYPE_CUDA) {
      absl::StatusOr<v1::DeviceInfo> now = nvml_->Describe(device.index());
      const auto processes = nvml_->Processes(device.index());
      if (!now.ok()) {
        reason = absl::StrCat(DeviceLabel(device), ": ", now.status().message());
      } else if (now->uuid() != device.uuid()) {
        reason = absl::StrCat(DeviceLabel(device), " is another device now: restart the worker");
      } else {
        device = *std::move(now);
        // A driver that names no processes still says how much memory is in use.
        if (!options_.share_device) {
          reason = ForeignMemoryReason(device,
                                       processes.ok() ? *processes : std::vector<Nvml::Process>());
        }
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    device_ = std::move(device);
    device_reason_ = was_idle && !rank_active_ ? std::move(reason) : "";
  }

  // No trainer of ours holds memory on the device, not even one whose memory the driver still
  // frees.
  bool IsSettled() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !rank_active_ &&
           (!idle_since_ || Clock::Real().Now() - *idle_since_ >= kMemoryReleaseTime);
  }

  // With mutex_ held.
  std::string UnplaceableReason() const {
    if (!shutdown_reason_.empty()) return "the worker is shutting down: " + shutdown_reason_;
    return leftover_reason_.empty() ? device_reason_ : leftover_reason_;
  }

  void PublishStats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats_ = supervisor_->stats();
  }

  // Kills the trainer, if any; in the core thread, or before Run.
  void Teardown() {
    events_.Close();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    wake_watcher_.notify_all();
    if (watcher_.joinable()) watcher_.join();
    agent_.Shutdown("", absl::ZeroDuration());
    supervisor_.reset();
  }

  const Options options_;
  const PathRoots roots_;
  const std::unique_ptr<Nvml> nvml_;
  const std::unique_ptr<Spool> spool_;
  const std::string marker_path_;
  const std::string incarnation_ = MakeIncarnation();
  EventQueue events_;
  PulseBoard pulses_;
  RankMetrics metrics_;

  mutable std::mutex mutex_;
  std::condition_variable wake_watcher_;
  // Guarded by mutex_.
  v1::DeviceInfo device_;
  HealthMeter health_;
  std::string device_reason_;
  std::string leftover_reason_;
  std::string shutdown_reason_;
  bool closing_ = false;
  bool rank_active_ = false;
  // Of the last change of rank_active_; absent: there was none.
  std::optional<MonotonicTime> idle_since_;
  Supervisor::Stats stats_;

  // Of the core thread.
  bool stop_requested_ = false;
  std::string stop_reason_;
  std::optional<absl::Status> replaced_;
  // What a previous life left running and does not die.
  std::optional<RankMarker> leftover_;
  MonotonicTime next_leftover_look_;

  Agent agent_;
  CheckpointFiles checkpoint_files_;
  std::unique_ptr<Supervisor> supervisor_;
  std::thread watcher_;
};

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;
absl::Status Daemon::Run() { return impl_->Run(); }
void Daemon::RequestStop(const std::string& reason) { impl_->RequestStop(reason); }
DeviceSnapshot Daemon::Snapshot() const { return impl_->Snapshot(); }
const std::string& Daemon::incarnation() const { return impl_->incarnation(); }

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(Options options,
                                                       std::unique_ptr<Nvml> nvml) {
  RETURN_IF_ERROR(ValidateWorkerName(options.name));
  ASSIGN_OR_RETURN(PathRoots roots, PathRoots::Create(options.allowed_paths));
  RETURN_IF_ERROR(MakeDirectories(options.state_dir + "/cache"));
  options.spool.dir = absl::StrCat(options.state_dir, "/", options.name, "/spool");
  options.spool.first_sequence = absl::ToUnixMicros(absl::Now());
  ASSIGN_OR_RETURN(std::unique_ptr<Spool> spool, Spool::Open(options.spool));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(roots), std::move(nvml),
                                     std::move(spool));
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

}  // namespace fsdp::daemon

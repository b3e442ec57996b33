// Commands, stops and time. What comes from the trainer: supervisor_trainer.cc.

#include "worker/daemon/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "worker/daemon/profile_files.h"
#include "worker/daemon/supervisor_rank.h"
#include "worker/daemon/timestamps.h"

namespace fsdp::daemon {
namespace {

// Far more jobs than a device can meet between two reasons to remember them.
constexpr std::size_t kMaxRememberedEpochs = 1024;

bool SameKey(const v1::EpochKey& a, const v1::EpochKey& b) {
  return a.job() == b.job() && a.epoch() == b.epoch() && a.rank() == b.rank();
}

// Modes by how much they leave to save.
int Severity(v1::StopMode mode) {
  switch (mode) {
    case v1::STOP_MODE_KILL:
      return 4;
    case v1::STOP_MODE_TERMINATE:
      return 3;
    case v1::STOP_MODE_DRAIN:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

Supervisor::Supervisor(Options options, Effects effects, Clock& clock, PulseBoard& pulses,
                       RankMetrics& metrics)
    : options_(std::move(options)),
      effects_(std::move(effects)),
      clock_(clock),
      pulses_(pulses),
      metrics_(metrics),
      disconnected_since_(clock.Now()) {
  for (const char* reason : {"finished", "stopped", "failed", "signal", "spawn_failed"}) {
    stats_.trainer_exits[reason] = 0;
  }
}

Supervisor::~Supervisor() = default;

void Supervisor::OnWelcome(const v1::Welcome& welcome) {
  disconnected_since_.reset();
  if (trainer_ == nullptr) return;
  if (!welcome.keep_running_rank()) {
    Stop(v1::STOP_MODE_KILL, "the coordinator does not know this epoch any more",
         absl::ZeroDuration());
    return;
  }
  ResendPending(welcome.acked_sequence());
  SendProfileUpdates();
}

void Supervisor::OnDisconnected() {
  if (!disconnected_since_) disconnected_since_ = clock_.Now();
}

void Supervisor::OnCommand(const v1::ConnectResponse& command) {
  switch (command.message_case()) {
    case v1::ConnectResponse::kStartRank:
      return Start(command.start_rank());
    case v1::ConnectResponse::kCommitEpoch:
      return HandleCommit(command.commit_epoch());
    case v1::ConnectResponse::kStopRank:
      return HandleStop(command.stop_rank());
    case v1::ConnectResponse::kRendezvousValue: {
      const v1::RendezvousValue& value = command.rendezvous_value();
      if (!IsCurrent(value.key(), "rendezvous value") || rank_->gets.erase(value.name()) == 0) {
        return;
      }
      v1::DaemonToTrainer message;
      *message.mutable_rendezvous_value() = value;
      return ToTrainer(message);
    }
    case v1::ConnectResponse::kManifestVerdict: {
      const v1::ManifestVerdict& verdict = command.manifest_verdict();
      // Of a proposal that was made twice, the first verdict counts.
      if (!IsCurrent(verdict.key(), "manifest verdict") ||
          rank_->proposals.erase(verdict.step()) == 0) {
        return;
      }
      v1::DaemonToTrainer message;
      *message.mutable_manifest_verdict() = verdict;
      return ToTrainer(message);
    }
    case v1::ConnectResponse::kStaleEpoch:
      return HandleStale(command.stale_epoch());
    case v1::ConnectResponse::kDumpDiagnostics:
      return HandleDump(command.dump_diagnostics());
    case v1::ConnectResponse::kStartProfile:
      return HandleProfile(command.start_profile());
    // The daemon's and the agent's own.
    case v1::ConnectResponse::kClockProbe:
    case v1::ConnectResponse::kReadFilePiece:
    case v1::ConnectResponse::kWelcome:
    case v1::ConnectResponse::kReportAck:
    case v1::ConnectResponse::MESSAGE_NOT_SET:
      return;
  }
}

bool Supervisor::IsStale(const v1::EpochKey& key) const {
  const auto known = epochs_.find(key.job());
  return known != epochs_.end() && key.epoch() < known->second;
}

bool Supervisor::IsCurrent(const v1::EpochKey& key, const char* what) {
  if (IsStale(key)) {
    ++stats_.num_stale_commands;
    LOG_WARNING("refused: %s for %s, the newest epoch known is %d", what, Describe(key),
                epochs_[key.job()]);
    return false;
  }
  if (rank_ == nullptr || !SameKey(rank_->start.key(), key)) {
    LOG_INFO("no effect: %s for %s, which does not run here", what, Describe(key));
    return false;
  }
  return true;
}

void Supervisor::RememberEpoch(const v1::EpochKey& key) {
  if (epochs_.emplace(key.job(), key.epoch()).second) {
    epoch_order_.push_back(key.job());
    if (epoch_order_.size() > kMaxRememberedEpochs) {
      epochs_.erase(epoch_order_.front());
      epoch_order_.pop_front();
    }
  }
  epochs_[key.job()] = key.epoch();
}

void Supervisor::Start(const v1::StartRank& start) {
  if (IsStale(start.key())) {
    IsCurrent(start.key(), "start");
    return;
  }
  if (num_shutdown_requests_ > 0) {
    return ReportNeverStarted(start.key(), shutdown_reason_, shutdown_reason_);
  }
  RememberEpoch(start.key());
  if (trainer_ == nullptr) return Launch(start);
  if (SameKey(rank_->start.key(), start.key())) {
    LOG_INFO("%s runs already", Describe(start.key()));
    return;
  }
  next_start_ = start;
  Stop(v1::STOP_MODE_KILL, absl::StrCat("replaced by ", Describe(start.key())),
       absl::ZeroDuration());
}

void Supervisor::Launch(const v1::StartRank& start) {
  absl::StatusOr<std::unique_ptr<Trainer>> trainer = effects_.launch(start);
  if (!trainer.ok()) return ReportNoLaunch(start, trainer.status());
  trainer_ = *std::move(trainer);
  rank_ = std::make_unique<Rank>();
  rank_->start = start;
  v1::RunningRank running;
  *running.mutable_key() = start.key();
  running.set_state(v1::RANK_STATE_STARTING);
  running.set_world_size(start.world_size());
  running.set_pid(trainer_->pid());
  pulses_.Begin(running);
  metrics_.Begin(start.key());
  effects_.mark(running);
  Log(v1::LOG_STREAM_WORKER,
      absl::StrFormat("trainer started for %s of %d, pid %d", Describe(start.key()),
                      start.world_size(), trainer_->pid()),
      false);
  LOG_INFO("trainer started for %s, pid %d", Describe(start.key()), trainer_->pid());
}

void Supervisor::ReportNoLaunch(const v1::StartRank& start, const absl::Status& status) {
  ++stats_.trainer_exits["spawn_failed"];
  const std::string message(status.message());
  LOG_ERROR("%s: %s", Describe(start.key()), message);
  v1::Report failure;
  *failure.mutable_key() = start.key();
  *failure.mutable_time() = ToTimestamp(clock_.WallNow());
  failure.mutable_failure()->set_cause(v1::FAILURE_CAUSE_RANK_FAILED);
  failure.mutable_failure()->set_message(message);
  failure.mutable_failure()->set_phase(v1::PHASE_START);
  v1::Report exited = failure;
  // As a shell tells that a command cannot be run.
  exited.mutable_exited()->set_exit_code(127);
  exited.mutable_exited()->add_last_lines(message);
  effects_.report(std::move(failure));
  effects_.report(std::move(exited));
}

void Supervisor::ReportNeverStarted(const v1::EpochKey& key, const std::string& reason,
                                    const std::string& own_reason) {
  v1::Report exited;
  *exited.mutable_key() = key;
  *exited.mutable_time() = ToTimestamp(clock_.WallNow());
  exited.mutable_exited()->add_last_lines(absl::StrCat("never started: ", reason));
  exited.mutable_exited()->set_worker_stop_reason(own_reason);
  effects_.report(std::move(exited));
}

// A trainer that is stopped or stuck in the kernel cannot answer; then its state is the diagnosis.
void Supervisor::HandleDump(const v1::DumpDiagnostics& dump) {
  if (!IsCurrent(dump.key(), "dump request")) return;
  const char state = ProcessState(trainer_->pid()).value_or('?');
  if (state == 'T' || state == 't' || state == 'D') {
    v1::Report report = NewReport();
    v1::RankNotice& notice = *report.mutable_notice();
    notice.set_type("TRAINER_STUCK");
    notice.set_severity(v1::EVENT_SEVERITY_WARNING);
    notice.set_step(rank_->last_step);
    notice.set_message(
        absl::StrFormat("rank %d's process %s (state %c): pid %d, %s", dump.key().rank(),
                        state == 'D' ? "waits in the kernel" : "is stopped", state, trainer_->pid(),
                        state == 'D' ? "for a disk, a network file system or a driver"
                                     : "by SIGSTOP or a debugger"));
    effects_.report(std::move(report));
  }
  v1::DaemonToTrainer message;
  *message.mutable_dump() = dump;
  ToTrainer(message);
}

void Supervisor::HandleProfile(const v1::StartProfile& start) {
  if (!IsCurrent(start.key(), "profile")) {
    return RefuseProfile(start, "the rank does not run here any more");
  }
  absl::Status status = CheckProfileName(start.profile());
  if (status.ok()) status = PrepareProfileDirectory(options_.profile_dir);
  if (!status.ok()) return RefuseProfile(start, std::string(status.message()));
  v1::DaemonToTrainer message;
  v1::TrainerProfile& profile = *message.mutable_profile();
  profile.set_profile(start.profile());
  *profile.mutable_options() = start.options();
  profile.set_path(ProfilePath(options_.profile_dir, start.profile()));
  ToTrainer(message);
}

void Supervisor::RefuseProfile(const v1::StartProfile& start, const std::string& why) {
  v1::ConnectRequest request;
  v1::ProfileUpdate& update = *request.mutable_profile_update();
  *update.mutable_key() = start.key();
  update.set_profile(start.profile());
  update.set_state(v1::PROFILE_STATE_FAILED);
  update.set_message(why);
  effects_.send(std::move(request));
}

void Supervisor::SendProfileUpdates() {
  for (const auto& [name, update] : rank_->profiles) {
    v1::ConnectRequest request;
    *request.mutable_profile_update() = update;
    effects_.send(std::move(request));
  }
}

void Supervisor::HandleCommit(const v1::CommitEpoch& commit) {
  if (!IsCurrent(commit.key(), "commit") || std::exchange(rank_->committed, true)) return;
  v1::DaemonToTrainer message;
  *message.mutable_commit() = commit;
  ToTrainer(message);
}

void Supervisor::HandleStale(const v1::StaleEpoch& stale) {
  if (!IsCurrent(stale.key(), "stale-epoch notice")) return;
  if (stale.live_epoch() <= stale.key().epoch()) return;
  Stop(v1::STOP_MODE_KILL,
       absl::StrFormat("epoch %d is over, epoch %d is live", stale.key().epoch(),
                       stale.live_epoch()),
       absl::ZeroDuration());
}

void Supervisor::HandleStop(const v1::StopRank& stop) {
  if (next_start_ && SameKey(next_start_->key(), stop.key())) {
    ReportNeverStarted(stop.key(), stop.reason(), "");
    next_start_.reset();
    return;
  }
  if (!IsCurrent(stop.key(), "stop")) return;
  const absl::Duration grace =
      stop.grace_seconds() > 0 ? absl::Seconds(stop.grace_seconds()) : GraceOf(rank_->start.job());
  Stop(stop.mode(), stop.reason(), grace);
}

absl::Duration Supervisor::GraceOf(const v1::TrainingJob& job) const {
  const v1::LimitSpec& limits = job.spec().limits();
  return limits.has_grace_period_seconds() ? absl::Seconds(limits.grace_period_seconds())
                                           : options_.default_grace;
}

// A later stop may be harsher or sooner than an earlier one, never milder or later.
void Supervisor::Stop(v1::StopMode mode, const std::string& reason, absl::Duration grace) {
  if (mode == v1::STOP_MODE_UNSPECIFIED) mode = v1::STOP_MODE_TERMINATE;
  // What does not train yet has nothing to finish or save.
  if (rank_->state < v1::RANK_STATE_RUNNING && mode != v1::STOP_MODE_KILL) {
    mode = v1::STOP_MODE_TERMINATE;
  }
  const bool harsher =
      rank_->stop_mode == v1::STOP_MODE_UNSPECIFIED || Severity(mode) > Severity(rank_->stop_mode);
  const MonotonicTime kill_time = clock_.Now() + grace;
  rank_->kill_time = rank_->kill_time ? std::min(*rank_->kill_time, kill_time) : kill_time;
  if (!harsher) return;
  rank_->stop_mode = mode;
  rank_->stop_requested = true;
  SetState(v1::RANK_STATE_STOPPING);
  const std::string name = v1::StopMode_Name(mode);
  LOG_INFO("stopping %s (%s): %s", Describe(rank_->start.key()), name, reason);
  Log(v1::LOG_STREAM_WORKER, absl::StrCat("stopping the trainer (", name, "): ", reason), false);
  if (mode == v1::STOP_MODE_KILL) {
    rank_->kill_time.reset();
    trainer_->Signal(SIGKILL);
    return;
  }
  v1::DaemonToTrainer message;
  message.mutable_stop()->set_mode(mode);
  message.mutable_stop()->set_reason(reason);
  ToTrainer(message);
  if (mode == v1::STOP_MODE_TERMINATE) trainer_->Signal(SIGTERM);
}

void Supervisor::BeginShutdown(const std::string& reason) {
  const bool again = num_shutdown_requests_++ > 0;
  if (!again) shutdown_reason_ = "the worker is shutting down: " + reason;
  if (next_start_) {
    ReportNeverStarted(next_start_->key(), shutdown_reason_, shutdown_reason_);
    next_start_.reset();
  }
  if (trainer_ == nullptr) return;
  if (!rank_->stop_requested) rank_->worker_stop_reason = shutdown_reason_;
  Stop(again ? v1::STOP_MODE_KILL : v1::STOP_MODE_CHECKPOINT, reason, GraceOf(rank_->start.job()));
}

void Supervisor::Tick() {
  if (rank_ == nullptr) return;
  const MonotonicTime now = clock_.Now();
  if (now - rank_->first_log_time >= options_.log_delay) FlushLogs();
  CheckDisconnect();
  if (rank_->kill_time && now >= *rank_->kill_time) {
    Stop(v1::STOP_MODE_KILL, "the grace period is over", absl::ZeroDuration());
  }
}

void Supervisor::CheckDisconnect() {
  if (!disconnected_since_ || rank_->stop_mode != v1::STOP_MODE_UNSPECIFIED) return;
  const v1::LimitSpec& limits = rank_->start.job().spec().limits();
  const absl::Duration limit = limits.has_stop_after_disconnect_seconds()
                                   ? absl::Seconds(limits.stop_after_disconnect_seconds())
                                   : options_.default_stop_after_disconnect;
  const absl::Duration away = clock_.Now() - *disconnected_since_;
  if (away < limit) return;
  const std::string message =
      absl::StrFormat("no coordinator for %d s (stopAfterDisconnectSeconds is %d)",
                      absl::ToInt64Seconds(away), absl::ToInt64Seconds(limit));
  v1::Report report = NewReport();
  report.mutable_failure()->set_cause(v1::FAILURE_CAUSE_ORPHANED);
  report.mutable_failure()->set_message(message);
  report.mutable_failure()->set_step(rank_->last_step);
  effects_.report(std::move(report));
  // A checkpoint could not be published without a coordinator.
  Stop(v1::STOP_MODE_TERMINATE, message, GraceOf(rank_->start.job()));
}

}  // namespace fsdp::daemon

#include "worker/daemon/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "worker/daemon/line_splitter.h"
#include "worker/daemon/timestamps.h"
#include "worker/daemon/version.h"

namespace fsdp::daemon {
namespace {

// Far more jobs than a device can meet between two reasons to remember them.
constexpr std::size_t kMaxRememberedEpochs = 1024;

std::string Describe(const v1::EpochKey& key) {
  return absl::StrFormat("%s attempt %d epoch %d rank %d", key.job(), key.attempt(), key.epoch(),
                         key.rank());
}

bool SameKey(const v1::EpochKey& a, const v1::EpochKey& b) {
  return a.job() == b.job() && a.epoch() == b.epoch() && a.rank() == b.rank();
}

std::string DescribeExit(const TrainerExit& exit) {
  if (exit.signal == 0) return absl::StrCat("exited with code ", exit.exit_code);
  return absl::StrCat("was ended by signal ", exit.signal, " (", ::strsignal(exit.signal), ")");
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

// What belongs to one trainer.
struct Supervisor::Rank {
  v1::StartRank start;
  v1::RankState state = v1::RANK_STATE_STARTING;
  bool committed = false;
  bool protocol_ok = false;
  std::int64_t last_step = 0;
  std::optional<v1::TrainerDone> done;
  std::deque<std::string> last_lines;
  v1::LogBatch logs;
  std::int64_t log_bytes = 0;
  MonotonicTime first_log_time;
  // Rendezvous of this epoch: sent again after a reconnect.
  std::map<std::string, v1::RendezvousPut> puts;
  std::map<std::string, v1::RendezvousGet> gets;
  // A proposal without a verdict, by step.
  struct Proposal {
    v1::ManifestProposal message;
    std::int64_t sequence = 0;
  };
  std::map<std::int64_t, Proposal> proposals;
  v1::StopMode stop_mode = v1::STOP_MODE_UNSPECIFIED;
  // SIGKILL is due.
  std::optional<MonotonicTime> kill_time;
  // Its end was asked for: no failure when it comes by signal.
  bool stop_requested = false;
};

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

// --- The coordinator's side
// ------------------------------------------------------------------------

void Supervisor::OnWelcome(const v1::Welcome& welcome) {
  disconnected_since_.reset();
  if (trainer_ == nullptr) return;
  if (!welcome.keep_running_rank()) {
    Stop(v1::STOP_MODE_KILL, "the coordinator does not know this epoch any more",
         absl::ZeroDuration());
    return;
  }
  ResendPending(welcome.acked_sequence());
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
    case v1::ConnectResponse::kDumpDiagnostics: {
      if (!IsCurrent(command.dump_diagnostics().key(), "dump request")) return;
      v1::DaemonToTrainer message;
      *message.mutable_dump() = command.dump_diagnostics();
      return ToTrainer(message);
    }
    // The agent's own.
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
    return ReportNeverStarted(start.key(), "the worker is shutting down");
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

void Supervisor::ReportNeverStarted(const v1::EpochKey& key, const std::string& reason) {
  v1::Report exited;
  *exited.mutable_key() = key;
  *exited.mutable_time() = ToTimestamp(clock_.WallNow());
  exited.mutable_exited()->add_last_lines(absl::StrCat("never started: ", reason));
  effects_.report(std::move(exited));
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
    ReportNeverStarted(stop.key(), stop.reason());
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
  if (next_start_) {
    ReportNeverStarted(next_start_->key(), reason);
    next_start_.reset();
  }
  if (trainer_ == nullptr) return;
  Stop(again ? v1::STOP_MODE_KILL : v1::STOP_MODE_CHECKPOINT, reason, GraceOf(rank_->start.job()));
}

// --- The trainer's side
// ----------------------------------------------------------------------------

void Supervisor::ToTrainer(const v1::DaemonToTrainer& message) {
  const absl::Status sent = trainer_->Send(message);
  if (sent.ok()) return;
  LOG_WARNING("%s: to the trainer: %s", Describe(rank_->start.key()), sent.message());
  // A trainer that takes nothing for seconds is stopped (SIGSTOP) or stuck; one that closed its end
  // is on its way out.
  if (absl::IsDeadlineExceeded(sent)) {
    Fail(v1::FAILURE_CAUSE_HANG, absl::StrCat("the trainer takes no messages: ", sent.message()));
  }
}

void Supervisor::OnTrainerMessage(const v1::TrainerToDaemon& message) {
  if (rank_ == nullptr) return;
  v1::Report report = NewReport();
  switch (message.message_case()) {
    case v1::TrainerToDaemon::kHello:
      return HandleHello(message.hello());
    case v1::TrainerToDaemon::kJoined:
      return HandleJoined(message.joined());
    case v1::TrainerToDaemon::kRunning:
      SetState(v1::RANK_STATE_RUNNING);
      *report.mutable_running() = message.running();
      break;
    case v1::TrainerToDaemon::kStep:
      return HandleStep(message.step());
    case v1::TrainerToDaemon::kRendezvousPut:
      return HandleRendezvousPut(message.rendezvous_put());
    case v1::TrainerToDaemon::kRendezvousGet:
      return HandleRendezvousGet(message.rendezvous_get());
    case v1::TrainerToDaemon::kShardWritten:
      *report.mutable_shard_written() = message.shard_written();
      break;
    case v1::TrainerToDaemon::kManifest:
      return Propose(message.manifest());
    case v1::TrainerToDaemon::kFailure:
      *report.mutable_failure() = message.failure();
      break;
    case v1::TrainerToDaemon::kNotice:
      *report.mutable_notice() = message.notice();
      break;
    case v1::TrainerToDaemon::kCollectiveDump:
      *report.mutable_collective_dump() = message.collective_dump();
      break;
    case v1::TrainerToDaemon::kDone:
      rank_->done = message.done();
      return;
    case v1::TrainerToDaemon::kCeilings:
      return metrics_.SetCeilings(rank_->start.key(), message.ceilings());
    // Pulses go straight to the board.
    case v1::TrainerToDaemon::kPulse:
    case v1::TrainerToDaemon::MESSAGE_NOT_SET:
      return;
  }
  effects_.report(std::move(report));
}

void Supervisor::HandleHello(const v1::TrainerHello& hello) {
  if (hello.protocol_version() != kTrainerProtocolVersion) {
    return Fail(v1::FAILURE_CAUSE_RANK_FAILED,
                absl::StrFormat("the trainer speaks protocol version %d, this daemon %d: install "
                                "both from one package",
                                hello.protocol_version(), kTrainerProtocolVersion));
  }
  v1::DaemonToTrainer message;
  v1::TrainerStart& start = *message.mutable_start();
  *start.mutable_assignment() = rank_->start;
  int threads = options_.cpu_threads;
  if (threads == 0) {
    threads = static_cast<int>(std::thread::hardware_concurrency()) /
              std::max(1, rank_->start.local_world_size());
  }
  start.set_cpu_threads(std::max(1, threads));
  start.set_bind_address(options_.bind_address);
  start.set_cache_dir(options_.cache_dir);
  ToTrainer(message);
}

void Supervisor::HandleJoined(v1::RankJoined joined) {
  if (joined.pid() == 0) joined.set_pid(trainer_->pid());
  SetState(v1::RANK_STATE_JOINED);
  v1::Report report = NewReport();
  *report.mutable_joined() = std::move(joined);
  effects_.report(std::move(report));
}

void Supervisor::HandleStep(const v1::StepReport& step) {
  rank_->last_step = std::max(rank_->last_step, step.metrics().step());
  pulses_.SetStep(rank_->last_step);
  metrics_.AddStep(rank_->start.key(), step);
  v1::Report report = NewReport();
  *report.mutable_step() = step;
  v1::StepMetrics& metrics = *report.mutable_step()->mutable_metrics();
  metrics.set_attempt(rank_->start.key().attempt());
  metrics.set_epoch(rank_->start.key().epoch());
  effects_.report(std::move(report));
}

void Supervisor::HandleRendezvousPut(v1::RendezvousPut put) {
  *put.mutable_key() = rank_->start.key();
  v1::ConnectRequest request;
  *request.mutable_rendezvous_put() = put;
  rank_->puts[put.name()] = std::move(put);
  effects_.send(std::move(request));
}

void Supervisor::HandleRendezvousGet(v1::RendezvousGet get) {
  *get.mutable_key() = rank_->start.key();
  v1::ConnectRequest request;
  *request.mutable_rendezvous_get() = get;
  rank_->gets[get.name()] = std::move(get);
  effects_.send(std::move(request));
}

// What was said on the old stream and is not in the spool may not have arrived; all of it may be
// said twice.
void Supervisor::ResendPending(std::int64_t acked_sequence) {
  for (const auto& [name, put] : rank_->puts) {
    v1::ConnectRequest request;
    *request.mutable_rendezvous_put() = put;
    effects_.send(std::move(request));
  }
  for (const auto& [name, get] : rank_->gets) {
    v1::ConnectRequest request;
    *request.mutable_rendezvous_get() = get;
    effects_.send(std::move(request));
  }
  // The spool delivers what was not acknowledged. Of what was, the verdict may be lost: ask anew.
  std::vector<v1::ManifestProposal> asked;
  for (const auto& [step, proposal] : rank_->proposals) {
    if (proposal.sequence <= acked_sequence) asked.push_back(proposal.message);
  }
  for (const v1::ManifestProposal& proposal : asked) Propose(proposal);
}

void Supervisor::Propose(const v1::ManifestProposal& proposal) {
  v1::Report report = NewReport();
  *report.mutable_manifest() = proposal;
  const std::int64_t sequence = effects_.report(std::move(report));
  rank_->proposals[proposal.checkpoint().step()] = {proposal, sequence};
}

void Supervisor::OnTrainerLinkClosed(const absl::Status& status) {
  if (rank_ == nullptr) return;
  if (!status.ok()) {
    return Fail(v1::FAILURE_CAUSE_RANK_FAILED,
                absl::StrCat("the trainer broke the link's protocol: ", status.message()));
  }
  const MonotonicTime kill_time = clock_.Now() + options_.link_closed_grace;
  rank_->kill_time = rank_->kill_time ? std::min(*rank_->kill_time, kill_time) : kill_time;
}

// The rank cannot go on, for a reason that the daemon found.
void Supervisor::Fail(v1::FailureCause cause, const std::string& message) {
  if (rank_->stop_mode == v1::STOP_MODE_KILL) return;
  v1::Report report = NewReport();
  report.mutable_failure()->set_cause(cause);
  report.mutable_failure()->set_message(message);
  report.mutable_failure()->set_step(rank_->last_step);
  effects_.report(std::move(report));
  const bool requested = rank_->stop_requested;
  Stop(v1::STOP_MODE_KILL, message, absl::ZeroDuration());
  rank_->stop_requested = requested;
}

void Supervisor::SetState(v1::RankState state) {
  // A rank that is told to stop stays STOPPING, whatever its trainer still says.
  if (rank_->state == v1::RANK_STATE_STOPPING) return;
  rank_->state = state;
  pulses_.SetState(state);
  metrics_.SetState(rank_->start.key(), state);
}

void Supervisor::OnTrainerExit(TrainerExit exit) {
  if (rank_ == nullptr) return;
  Log(v1::LOG_STREAM_WORKER, absl::StrCat("trainer ", DescribeExit(exit)), false);
  FlushLogs();
  LOG_INFO("%s: trainer %s", Describe(rank_->start.key()), DescribeExit(exit));
  v1::Report report = NewReport();
  v1::RankExited& exited = *report.mutable_exited();
  exited.set_exit_code(exit.exit_code);
  exited.set_signal(exit.signal);
  for (std::string& line : rank_->last_lines) exited.add_last_lines(std::move(line));
  exited.set_last_step(rank_->last_step);
  if (rank_->done) {
    exited.set_last_step(std::max(rank_->last_step, rank_->done->last_step()));
    exited.set_finished(rank_->done->finished());
    exited.set_checkpoint_step(rank_->done->checkpoint_step());
    if (rank_->done->has_result()) *exited.mutable_result() = rank_->done->result();
  }
  const char* const reason = exited.finished() && exit.exit_code == 0 && exit.signal == 0
                                 ? "finished"
                             : rank_->stop_requested ? "stopped"
                             : exit.signal != 0      ? "signal"
                                                     : "failed";
  ++stats_.trainer_exits[reason];
  effects_.report(std::move(report));
  metrics_.End(rank_->start.key());
  pulses_.End();
  // After the report is durable: a marker without a process tells the next life that the report of
  // the exit may be missing.
  effects_.mark(std::nullopt);
  trainer_.reset();
  rank_.reset();
  if (next_start_) Launch(*std::exchange(next_start_, std::nullopt));
}

// --- Logs and time
// ---------------------------------------------------------------------------------

v1::Report Supervisor::NewReport() const {
  v1::Report report;
  *report.mutable_key() = rank_->start.key();
  *report.mutable_time() = ToTimestamp(clock_.WallNow());
  return report;
}

void Supervisor::OnTrainerLine(v1::LogStream stream, std::string text, bool continued) {
  if (rank_ == nullptr) return;
  if (stream == v1::LOG_STREAM_STDERR) {
    rank_->last_lines.push_back(text.substr(0, options_.last_line_bytes));
    // The cut may have gone through a code point.
    if (text.size() > options_.last_line_bytes) {
      rank_->last_lines.back() = ToValidUtf8(std::move(rank_->last_lines.back()));
    }
    if (static_cast<int>(rank_->last_lines.size()) > options_.num_last_lines) {
      rank_->last_lines.pop_front();
    }
  }
  Log(stream, std::move(text), continued);
}

void Supervisor::Log(v1::LogStream stream, std::string text, bool continued) {
  if (rank_->logs.entries().empty()) rank_->first_log_time = clock_.Now();
  rank_->log_bytes += static_cast<std::int64_t>(text.size()) + 32;
  v1::LogEntry& entry = *rank_->logs.add_entries();
  *entry.mutable_time() = ToTimestamp(clock_.WallNow());
  entry.set_attempt(rank_->start.key().attempt());
  entry.set_epoch(rank_->start.key().epoch());
  entry.set_rank(rank_->start.key().rank());
  entry.set_stream(stream);
  entry.set_text(std::move(text));
  entry.set_continued(continued);
  if (rank_->log_bytes >= options_.log_batch_bytes) FlushLogs();
}

void Supervisor::FlushLogs() {
  if (rank_->logs.entries().empty()) return;
  v1::Report report = NewReport();
  report.mutable_logs()->Swap(&rank_->logs);
  rank_->logs.Clear();
  rank_->log_bytes = 0;
  effects_.report(std::move(report));
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

// Supervisor: what trainers say, write and end with.

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "worker/daemon/line_splitter.h"
#include "worker/daemon/profile_files.h"
#include "worker/daemon/supervisor.h"
#include "worker/daemon/supervisor_rank.h"
#include "worker/daemon/timestamps.h"
#include "worker/daemon/version.h"

namespace fsdp::daemon {
namespace {

std::string DescribeExit(const TrainerExit& exit) {
  if (exit.signal == 0) return absl::StrCat("exited with code ", exit.exit_code);
  return absl::StrCat("was ended by signal ", exit.signal, " (", ::strsignal(exit.signal), ")");
}

constexpr std::size_t kMaxProfiles = 8;
constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

void CutText(std::string* text) {
  if (text->size() > kMaxMessageBytes) *text = ToValidUtf8(text->substr(0, kMaxMessageBytes));
}

// The newest half, again and again, until it fits; a dump of stacks alone goes entirely.
void CutDump(v1::CollectiveDump* dump, std::size_t max_bytes) {
  while (dump->ByteSizeLong() > max_bytes && dump->records_size() > 0) {
    dump->mutable_records()->DeleteSubrange(0, (dump->records_size() + 1) / 2);
  }
  if (dump->ByteSizeLong() > max_bytes) dump->clear_stacks();
}

}  // namespace

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
    case v1::TrainerToDaemon::kPublished:
      *report.mutable_published() = message.published();
      break;
    case v1::TrainerToDaemon::kCollectiveDump:
      *report.mutable_collective_dump() = message.collective_dump();
      break;
    case v1::TrainerToDaemon::kProfile:
      return HandleProfileUpdate(message.profile());
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
  ReportForTrainer(std::move(report));
}

// A report that the coordinator cannot take would end the stream, at every attempt to deliver it.
void Supervisor::ReportForTrainer(v1::Report report) {
  const std::size_t limit = options_.max_report_bytes;
  if (report.has_failure()) CutText(report.mutable_failure()->mutable_message());
  if (report.has_notice()) CutText(report.mutable_notice()->mutable_message());
  if (report.has_collective_dump()) CutDump(report.mutable_collective_dump(), limit / 2);
  if (report.ByteSizeLong() <= limit) {
    effects_.report(std::move(report));
    return;
  }
  Fail(v1::FAILURE_CAUSE_RANK_FAILED,
       absl::StrFormat("the trainer's report has %d bytes, the limit is %d", report.ByteSizeLong(),
                       limit));
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
  start.set_share_device(options_.share_device);
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
  ReportForTrainer(std::move(report));
}

void Supervisor::HandleProfileUpdate(const v1::TrainerProfileUpdate& from) {
  v1::ConnectRequest request;
  v1::ProfileUpdate& update = *request.mutable_profile_update();
  *update.mutable_key() = rank_->start.key();
  update.set_profile(from.profile());
  update.set_state(from.state());
  update.set_steps(from.steps());
  update.set_size_bytes(from.size_bytes());
  update.set_crc32c(from.crc32c());
  update.set_message(from.message());
  CutText(update.mutable_message());
  rank_->profiles[from.profile()] = update;
  // Of older ones everybody has heard.
  if (rank_->profiles.size() > kMaxProfiles) rank_->profiles.erase(rank_->profiles.begin());
  effects_.send(std::move(request));
}

void Supervisor::KeepRecordings(const std::string& why) {
  for (auto& [name, update] : rank_->profiles) {
    if (update.state() != v1::PROFILE_STATE_RECORDING) continue;
    const auto kept = KeepRecording(ProfilePath(options_.profile_dir, name), why);
    if (!kept.ok()) {
      LOG_INFO("profile %s: nothing is left of it: %s", name, kept.status().message());
      continue;
    }
    update.MergeFrom(*kept);
    update.set_state(v1::PROFILE_STATE_DONE);
    v1::ConnectRequest request;
    *request.mutable_profile_update() = update;
    effects_.send(std::move(request));
  }
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
  // Before the exit: after it the coordinator expects nothing of the rank any more.
  KeepRecordings(absl::StrCat("the trainer ", DescribeExit(exit)));
  v1::Report report = NewReport();
  v1::RankExited& exited = *report.mutable_exited();
  exited.set_exit_code(exit.exit_code);
  exited.set_signal(exit.signal);
  exited.set_signalled_by_worker(exit.signalled_by_us);
  exited.set_worker_stop_reason(rank_->worker_stop_reason);
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

}  // namespace fsdp::daemon

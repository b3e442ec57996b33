// Coordinator: the worker's conversation.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "coordinator/version.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

std::string KindOf(const v1::Report& report) {
  const auto* field = v1::Report::descriptor()->FindFieldByNumber(report.body_case());
  return field == nullptr ? "unknown" : field->name();
}

// Where the job is instead. A dead epoch may still be its last: then the job's state is the news.
std::string Whereabouts(const JobRuntime* job, const v1::EpochKey& key) {
  if (job == nullptr) return absl::StrCat(key.job(), " does not exist");
  if (job->job().epoch() != key.epoch()) {
    return absl::StrCat("the job is at epoch ", job->job().epoch());
  }
  if (job->record.phase() == records::EPOCH_PHASE_UNSPECIFIED) {
    return absl::StrCat("the epoch is over and the job ", StateName(job->job().state()));
  }
  return "the rank is not this worker's, or has ended";
}

}  // namespace

absl::StatusOr<Coordinator::Session> Coordinator::OnHello(const v1::WorkerHello& hello,
                                                          std::shared_ptr<WorkerSink> sink) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckServing());
  NoticeOwnPause(Now());
  RETURN_IF_ERROR(workers_.CheckHello(hello));
  const WorkerId id = WorkerIdFromName(hello.worker());
  if (WorkerEntry* known = workers_.Find(id); known != nullptr) {
    if (known->sink != nullptr) {
      known->sink->Close(StreamReplaced(id.value()));
    }
    const std::string old_life = known->record.incarnation();
    const bool known_lost = known->liveness == Liveness::kLost;
    if (!old_life.empty() && old_life != hello.incarnation() && !known_lost) {
      LoseWorker(*known, old_life, "its daemon was started anew", absl::ZeroDuration());
    }
  }
  WorkerEntry& worker = workers_.Accept(hello, sink, Now());
  LOG_INFO("worker %s connected from %s, incarnation %s", id.value(), hello.host(),
           hello.incarnation());
  v1::ConnectResponse response;
  v1::Welcome& welcome = *response.mutable_welcome();
  welcome.set_coordinator_incarnation(incarnation_);
  welcome.set_protocol_version(kProtocolVersion);
  welcome.set_heartbeat_seconds(absl::ToDoubleSeconds(options_.timing.heartbeat_period));
  welcome.set_acked_sequence(worker.record.acked_sequence());
  const Session session{id, worker.session};

  // The welcome goes out first: what adoption sends to this stream follows it.
  JobRuntime* job = worker.assigned ? Find(worker.assigned->job) : nullptr;
  const bool running = hello.has_running() && hello.running().has_key();
  const bool same_rank = running && job != nullptr &&
                         LiveJob(worker, hello.running().key()) == job &&
                         hello.running().key().rank() == worker.assigned->rank;
  const bool doomed = job != nullptr && job->record.phase() == records::EPOCH_PHASE_ENDING &&
                      job->record.intent() == records::STOP_INTENT_UNSPECIFIED;
  welcome.set_keep_running_rank(same_rank && !doomed);
  sink->Send(response);
  StoreBatch batch;
  batch.workers.push_back(worker.record);
  Persist(std::move(batch), nullptr);

  if (running && !same_rank) StopForeign(worker, hello.running().key());
  if (job != nullptr) {
    const int rank = worker.assigned->rank;
    const bool unacked = hello.spool_last() > worker.record.acked_sequence();
    Apply(*job,
          [&](JobController& controller) { controller.OnWorkerBack(rank, same_rank, unacked); });
  }
  WantSchedule();
  return session;
}

void Coordinator::StopForeign(WorkerEntry& worker, const v1::EpochKey& key) {
  worker.foreign = key;
  AnswerStale(worker, key, "hello");
  v1::ConnectResponse response;
  v1::StopRank& stop = *response.mutable_stop_rank();
  *stop.mutable_key() = key;
  stop.set_mode(v1::STOP_MODE_KILL);
  stop.set_reason("its epoch is over");
  if (worker.sink != nullptr) worker.sink->Send(response);
}

void Coordinator::AnswerStale(WorkerEntry& worker, const v1::EpochKey& key, const char* kind) {
  counters_.Add("fsdp_stale_messages_total", kind);
  const JobRuntime* job = Find(JobIdFromName(key.job()));
  v1::ConnectResponse response;
  v1::StaleEpoch& stale = *response.mutable_stale_epoch();
  *stale.mutable_key() = key;
  stale.set_live_epoch(job == nullptr ? 0 : job->job().epoch());
  stale.set_message(absl::StrCat(key.job(), ": ", kind, " of rank ", key.rank(), " in epoch ",
                                 key.epoch(), " refused, ", Whereabouts(job, key)));
  const std::string epoch = absl::StrCat(key.job(), "@", key.epoch());
  if (worker.stale_logged != epoch) {
    LOG_WARNING("worker %s: %s", worker.record.id(), stale.message());
    worker.stale_logged = epoch;
  }
  if (worker.sink != nullptr) worker.sink->Send(response);
}

JobRuntime* Coordinator::LiveJob(const WorkerEntry& worker, const v1::EpochKey& key) {
  JobRuntime* job = Find(JobIdFromName(key.job()));
  if (job == nullptr || job->job().epoch() != key.epoch() ||
      job->job().attempt() != key.attempt() ||
      job->record.phase() == records::EPOCH_PHASE_UNSPECIFIED) {
    return nullptr;
  }
  if (key.rank() < 0 || key.rank() >= job->record.members_size()) return nullptr;
  const records::MemberRecord& member = job->record.members(key.rank());
  const bool mine =
      member.worker() == worker.record.id() && member.incarnation() == worker.record.incarnation();
  return mine && !member.released() ? job : nullptr;
}

absl::Status Coordinator::OnMessage(const Session& session, const v1::ConnectRequest& message) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckServing());
  NoticeOwnPause(Now());
  WorkerEntry* worker = workers_.Find(session.worker);
  if (worker == nullptr || worker->session != session.number || worker->sink == nullptr) {
    return StreamReplaced(session.worker.value());
  }
  worker->facts.heard = clock_.Now();
  worker->heartbeat_time = clock_.WallNow();
  switch (message.message_case()) {
    case v1::ConnectRequest::kHeartbeat:
      HandleHeartbeat(*worker, message.heartbeat());
      return absl::OkStatus();
    case v1::ConnectRequest::kReport:
      HandleReport(*worker, message.report());
      return absl::OkStatus();
    case v1::ConnectRequest::kRendezvousPut:
    case v1::ConnectRequest::kRendezvousGet: {
      const bool put = message.message_case() == v1::ConnectRequest::kRendezvousPut;
      const v1::EpochKey& key =
          put ? message.rendezvous_put().key() : message.rendezvous_get().key();
      JobRuntime* job = LiveJob(*worker, key);
      if (job == nullptr) {
        AnswerStale(*worker, key, "rendezvous");
        return absl::OkStatus();
      }
      Apply(*job, [&](JobController& controller) {
        if (put) {
          controller.OnPut(key.rank(), message.rendezvous_put());
        } else {
          controller.OnGet(key.rank(), message.rendezvous_get());
        }
      });
      return absl::OkStatus();
    }
    case v1::ConnectRequest::kFilePiece:
      files_.OnPiece(workers_, session.worker, message.file_piece(), clock_.Now());
      return absl::OkStatus();
    case v1::ConnectRequest::kProfileUpdate:
      profiles_.OnUpdate(workers_, session.worker, message.profile_update(), clock_.Now());
      return absl::OkStatus();
    case v1::ConnectRequest::kClockAnswer:
      profiles_.OnClock(workers_, session.worker, message.clock_answer(), clock_.Now());
      return absl::OkStatus();
    case v1::ConnectRequest::kGoodbye:
      LOG_INFO("worker %s leaves: %s", worker->record.id(), message.goodbye().reason());
      worker->record.set_left(true);
      return absl::OkStatus();
    default:
      // A message of a newer worker that this version does not know.
      return absl::OkStatus();
  }
}

void Coordinator::HandleHeartbeat(WorkerEntry& worker, const v1::Heartbeat& heartbeat) {
  if (worker.liveness == Liveness::kSuspect) {
    worker.liveness = Liveness::kAlive;
    WantSchedule();
  }
  if (heartbeat.has_time()) {
    worker.clock_offset = FromTimestamp(heartbeat.time()) - clock_.WallNow();
  }
  if (heartbeat.has_device()) *worker.record.mutable_device() = heartbeat.device();
  if (worker.unplaceable_reason != heartbeat.unplaceable_reason()) {
    worker.unplaceable_reason = heartbeat.unplaceable_reason();
    WantSchedule();
  }
  JobRuntime* const assigned = worker.assigned ? Find(worker.assigned->job) : nullptr;
  if (!heartbeat.shutdown_reason().empty() && assigned != nullptr) {
    Apply(*assigned, [&](JobController& controller) {
      controller.OnWorkerShutdown(worker.id(), heartbeat.shutdown_reason());
    });
  }
  if (!heartbeat.has_rank()) {
    if (worker.foreign) {
      worker.foreign.reset();
      WantSchedule();
    }
    if (assigned == nullptr || !worker.assigned) return;
    const int rank = worker.assigned->rank;
    return Apply(*assigned, [&](JobController& controller) { controller.OnIdle(rank); });
  }
  const v1::EpochKey& key = heartbeat.rank().key();
  if (JobRuntime* job = LiveJob(worker, key); job != nullptr) {
    return Apply(
        *job, [&](JobController& controller) { controller.OnPulse(key.rank(), heartbeat.rank()); });
  }
  StopForeign(worker, key);
}

void Coordinator::HandleDuplicate(WorkerEntry& worker, const v1::Report& report) {
  std::vector<std::pair<std::shared_ptr<WorkerSink>, v1::ConnectResponse>> messages;
  v1::ConnectResponse ack;
  ack.mutable_report_ack()->set_sequence(worker.received_sequence);
  messages.emplace_back(worker.sink, ack);
  // The verdict may have been lost with the stream, and its sender waits for it.
  if (report.body_case() == v1::Report::kManifest) {
    const std::int64_t step = report.manifest().checkpoint().step();
    const JobRuntime* job = LiveJob(worker, report.key());
    const bool known =
        job != nullptr && std::any_of(job->checkpoints.begin(), job->checkpoints.end(),
                                      [&](const auto& info) { return info.step() == step; });
    v1::ConnectResponse response;
    v1::ManifestVerdict& verdict = *response.mutable_manifest_verdict();
    *verdict.mutable_key() = report.key();
    verdict.set_step(step);
    verdict.set_admitted(known);
    if (!known) verdict.set_reason("it was refused");
    messages.emplace_back(worker.sink, response);
  }
  // Everything received so far is in the store's queue before this: acknowledged when durable.
  Persist({}, [messages = std::move(messages)](absl::Status status) {
    if (!status.ok()) return;
    for (const auto& [sink, message] : messages) sink->Send(message);
  });
}

void Coordinator::HandleReport(WorkerEntry& worker, const v1::Report& report) {
  if (report.sequence() <= worker.received_sequence) return HandleDuplicate(worker, report);
  worker.received_sequence = report.sequence();
  counters_.Add("fsdp_reports_total", KindOf(report));
  worker.record.set_acked_sequence(report.sequence());
  *worker.record.mutable_seen_time() = ToTimestamp(clock_.WallNow());

  Extra extra;
  extra.worker = worker.record;
  v1::ConnectResponse ack;
  ack.mutable_report_ack()->set_sequence(report.sequence());
  extra.messages.emplace_back(worker.sink, std::move(ack));

  JobRuntime* job = LiveJob(worker, report.key());
  if (job != nullptr) {
    Effects effects;
    JobController controller(*job, options_, Now(), effects);
    if (report.body_case() == v1::Report::kLogs) {
      StoreLogs(*job, report.logs(), &effects);
    } else {
      DispatchReport(worker, report, controller);
    }
    return CarryOut(*job, std::move(effects), std::move(extra));
  }
  if (worker.foreign && worker.foreign->epoch() == report.key().epoch() &&
      report.body_case() == v1::Report::kExited) {
    worker.foreign.reset();
    WantSchedule();
  }
  // The last words of a dead epoch are still worth reading; all else is refused.
  JobRuntime* known = Find(JobIdFromName(report.key().job()));
  Effects effects;
  if (known != nullptr && report.body_case() == v1::Report::kLogs &&
      report.key().epoch() <= known->job().epoch()) {
    StoreLogs(*known, report.logs(), &effects);
    return CarryOut(*known, std::move(effects), std::move(extra));
  }
  AnswerStale(worker, report.key(),
              report.body_case() == v1::Report::kManifest ? "manifest" : "report");
  if (report.body_case() == v1::Report::kManifest) {
    v1::ConnectResponse response;
    v1::ManifestVerdict& verdict = *response.mutable_manifest_verdict();
    *verdict.mutable_key() = report.key();
    verdict.set_step(report.manifest().checkpoint().step());
    verdict.set_reason(
        absl::StrCat("epoch ", report.key().epoch(), ": ", Whereabouts(known, report.key())));
    extra.messages.emplace_back(worker.sink, std::move(response));
  }
  StoreBatch batch;
  batch.workers.push_back(*extra.worker);
  Persist(std::move(batch), [messages = std::move(extra.messages)](absl::Status status) {
    if (!status.ok()) return;
    for (const auto& [sink, message] : messages) sink->Send(message);
  });
}

bool Coordinator::StoreLogs(JobRuntime& job, const v1::LogBatch& logs, Effects* effects) {
  for (const v1::LogEntry& entry : logs.entries()) {
    effects->logs.push_back(entry);
    effects->logs.back().set_offset(++job.last_log);
  }
  return !logs.entries().empty();
}

void Coordinator::DispatchReport(WorkerEntry& worker, const v1::Report& report,
                                 JobController& controller) {
  const int rank = report.key().rank();
  if (report.has_time()) {
    controller.SetReportTime(FromTimestamp(report.time()) - worker.clock_offset);
  }
  switch (report.body_case()) {
    case v1::Report::kJoined:
      return controller.OnJoined(rank, report.joined());
    case v1::Report::kRunning:
      return controller.OnRunning(rank, report.running());
    case v1::Report::kStep:
      return controller.OnStep(rank, report.step());
    case v1::Report::kManifest:
      return controller.OnManifest(rank, report.manifest());
    case v1::Report::kPublished:
      return controller.OnPublished(rank, report.published());
    case v1::Report::kExited:
      return controller.OnExited(rank, report.exited());
    case v1::Report::kFailure:
      return controller.OnFailure(rank, report.failure());
    case v1::Report::kCollectiveDump:
      dumps_.OnDump(report.key(), report.collective_dump());
      return controller.OnDump(rank, report.collective_dump());
    case v1::Report::kNotice:
      if (report.notice().type() == kTrainerStuck) {
        dumps_.OnSilent(report.key(), report.notice().message());
      }
      return controller.OnNotice(rank, report.notice());
    default:
      // A written shard counts only through its manifest; newer kinds are not known here.
      return;
  }
}

void Coordinator::OnDisconnect(const Session& session) {
  const std::lock_guard lock(mutex_);
  WorkerEntry* worker = workers_.Find(session.worker);
  if (worker == nullptr || worker->session != session.number || worker->sink == nullptr) return;
  LOG_INFO("worker %s: stream closed", worker->record.id());
  worker->sink = nullptr;
  files_.OnDisconnect(session.worker);
  worker->facts.connected = false;
  worker->facts.disconnected = clock_.Now();
  worker->liveness = Liveness::kSuspect;
  if (worker->record.left()) {
    LoseWorker(*worker, worker->record.incarnation(), "it was stopped", absl::ZeroDuration());
  }
}

void Coordinator::LoseWorker(WorkerEntry& worker, const std::string& incarnation,
                             const std::string& reason, absl::Duration silent) {
  worker.liveness = Liveness::kLost;
  if (!worker.record.left()) {
    counters_.Add("fsdp_worker_losses_total", worker.facts.connected ? "silent" : "stream_closed");
    LOG_WARNING("worker %s is lost: %s", worker.record.id(), reason);
  }
  if (worker.sink != nullptr) {
    worker.sink->Close(WithInfo(
        absl::AbortedError(absl::StrCat("worker ", worker.record.id(), " was given up: ", reason)),
        "WORKER_GIVEN_UP", {{"worker", worker.record.id()}, {"cause", reason}}));
    worker.sink = nullptr;
    files_.OnDisconnect(worker.id());
    worker.facts.connected = false;
    worker.facts.disconnected = clock_.Now();
  }
  if (!worker.record.has_lost_time()) {
    *worker.record.mutable_lost_time() = ToTimestamp(clock_.WallNow());
    StoreBatch batch;
    batch.workers.push_back(worker.record);
    Persist(std::move(batch), nullptr);
  }
  JobRuntime* job = worker.assigned ? Find(worker.assigned->job) : nullptr;
  worker.assigned.reset();
  if (job == nullptr) return;
  const WorkerId id = worker.id();
  Apply(*job, [&](JobController& controller) {
    controller.OnWorkerLost(id, incarnation, reason, silent);
  });
}

// -----------------------------------------------------------------------------------------------
// Workers, for people

std::vector<v1::Worker> Coordinator::ListWorkers() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::Worker> result;
  for (const auto& [id, entry] : workers_.entries()) result.push_back(DescribeWorker(entry));
  return result;
}

absl::StatusOr<v1::Worker> Coordinator::GetWorker(const WorkerId& worker) const {
  const std::lock_guard lock(mutex_);
  const auto entry = workers_.entries().find(worker);
  if (entry == workers_.entries().end()) return NoSuchWorker(worker.value());
  return DescribeWorker(entry->second);
}

void Coordinator::DrainWorker(const CallerIdentity& caller, const WorkerId& worker, bool stop_ranks,
                              const std::string& reason, WorkerDone done) {
  LOG_INFO("worker %s: drain by %s", worker.value(), caller.subject);
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  WorkerEntry* entry = workers_.Find(worker);
  if (entry == nullptr) return done(NoSuchWorker(worker.value()));
  entry->record.set_cordoned(true);
  entry->record.set_cordon_reason(reason);
  JobRuntime* job = entry->assigned ? Find(entry->assigned->job) : nullptr;
  std::vector<std::string> warnings;
  if (stop_ranks && job != nullptr) {
    Effects effects;
    JobController(*job, options_, Now(), effects).Drain(worker, reason);
    warnings = effects.warnings;
    CarryOut(*job, std::move(effects), Extra());
  }
  StoreCordon(*entry, std::move(warnings), std::move(done));
}

void Coordinator::UncordonWorker(const CallerIdentity& caller, const WorkerId& worker,
                                 WorkerDone done) {
  LOG_INFO("worker %s: uncordon by %s", worker.value(), caller.subject);
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  WorkerEntry* entry = workers_.Find(worker);
  if (entry == nullptr) return done(NoSuchWorker(worker.value()));
  entry->record.set_cordoned(false);
  entry->record.clear_cordon_reason();
  StoreCordon(*entry, {}, std::move(done));
}

void Coordinator::StoreCordon(const WorkerEntry& worker, std::vector<std::string> warnings,
                              WorkerDone done) {
  StoreBatch batch;
  batch.workers.push_back(worker.record);
  Persist(std::move(batch),
          [done = std::move(done),
           reply = WorkerReply{DescribeWorker(worker), std::move(warnings)}](absl::Status status) {
            if (!status.ok()) return done(status);
            done(reply);
          });
  WantSchedule();
}

v1::GetClusterResponse Coordinator::Describe() const {
  const CoordinatorStats stats = Stats();
  const auto count = [](const auto& map, auto key) {
    const auto entry = map.find(key);
    return entry == map.end() ? 0 : static_cast<std::int32_t>(entry->second);
  };
  v1::GetClusterResponse response;
  response.set_version(kVersion);
  response.set_protocol_version(kProtocolVersion);
  response.set_incarnation(incarnation_);
  *response.mutable_start_time() = ToTimestamp(start_time_);
  *response.mutable_time() = ToTimestamp(clock_.WallNow());
  response.set_workers_ready(count(stats.workers, v1::WORKER_STATE_READY));
  response.set_workers_busy(count(stats.workers, v1::WORKER_STATE_BUSY));
  response.set_jobs_queued(count(stats.jobs, v1::JOB_STATE_QUEUED));
  response.set_jobs_running(count(stats.jobs, v1::JOB_STATE_RUNNING));
  const std::lock_guard lock(mutex_);
  *response.mutable_maintenance() = maintenance_;
  return response;
}

}  // namespace fsdp::coordinator

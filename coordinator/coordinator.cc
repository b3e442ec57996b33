#include "coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "coordinator/version.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/support/log.h"
#include "proto/support/metric_table.h"
#include "proto/support/status.h"
#include "worker/plan/plan.h"
#include "worker/plan/plan_advice.h"

namespace fsdp::coordinator {
namespace {

constexpr size_t kMaxRequestId = 36;

std::string RandomHex(std::mt19937_64& random) { return absl::StrFormat("%016x", random()); }

std::mt19937_64 SeededGenerator() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

absl::Status CheckRequestId(const std::string& id) {
  const bool valid = id.size() <= kMaxRequestId && std::all_of(id.begin(), id.end(), [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                              (c >= 'A' && c <= 'Z') || c == '-';
                     });
  if (valid) return absl::OkStatus();
  return BadField("request_id", id,
                  absl::StrCat("'", id.substr(0, 60), "': want at most ", kMaxRequestId,
                               " characters of [A-Za-z0-9-]"));
}

// FNV-1a over the spec's deterministic bytes: stable over restarts and versions.
std::uint64_t Fingerprint(const v1::TrainingJob& job) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    job.SerializeToCodedStream(&coded);
  }
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

Coordinator::Coordinator(const Options& options, Dependencies dependencies)
    : options_(options),
      clock_(*dependencies.clock),
      store_(dependencies.store),
      admission_(*dependencies.admission),
      counters_(*dependencies.counters),
      on_fatal_(std::move(dependencies.on_fatal)),
      incarnation_([] {
        std::mt19937_64 random = SeededGenerator();
        return RandomHex(random);
      }()),
      start_time_(clock_.WallNow()),
      random_(SeededGenerator()) {}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(const Options& options,
                                                                 Dependencies dependencies) {
  auto coordinator =
      std::unique_ptr<Coordinator>(new Coordinator(options, std::move(dependencies)));
  RETURN_IF_ERROR(coordinator->Load());
  return coordinator;
}

TimePoint Coordinator::Now() const { return {clock_.Now(), clock_.WallNow()}; }

absl::Status Coordinator::Load() {
  ASSIGN_OR_RETURN(StoreContents contents, store_->Load());
  const std::lock_guard lock(mutex_);
  std::set<std::string> expected;
  for (StoredJob& stored : contents.jobs) LoadJob(std::move(stored), &expected);
  for (const auto& [id, job] : jobs_) {
    // What has succeeded is never started again.
    if (!job->job().has_checkpoint() || job->job().state() == v1::JOB_STATE_SUCCEEDED) continue;
    ASSIGN_OR_RETURN(job->checkpoints, store_->ReadCheckpoints(id));
    std::reverse(job->checkpoints.begin(), job->checkpoints.end());
  }
  for (RendezvousItem& item : contents.rendezvous) {
    JobRuntime* job = Find(item.job);
    if (job == nullptr || job->job().epoch() != item.epoch.value()) continue;
    std::vector<int> waiters;
    RETURN_IF_ERROR(job->rendezvous.Put(item.name, std::move(item.value),
                                        static_cast<size_t>(job->record.members_size()), &waiters));
  }
  for (const records::WorkerRecord& record : contents.workers) {
    workers_.Restore(record, clock_.Now(), expected.contains(record.id()));
  }
  for (const JobId& id : unfinished_) {
    SyncAssignments(*jobs_.at(id));
    SyncSpares(*jobs_.at(id));
  }
  maintenance_ = contents.cluster.maintenance();
  if (maintenance_.mode() == v1::MAINTENANCE_MODE_UNSPECIFIED) {
    maintenance_.set_mode(v1::MAINTENANCE_MODE_OFF);
  }
  for (const auto& [id, tasks] : arrays_) {
    JobRuntime& array = *jobs_.at(id);
    Apply(array, [&](JobController& controller) { controller.OnTasks(Summary(array)); });
  }
  schedule_wanted_ = true;
  LOG_INFO("loaded %d jobs (%d unfinished) and %d workers", jobs_.size(), unfinished_.size(),
           contents.workers.size());
  return absl::OkStatus();
}

void Coordinator::LoadJob(StoredJob stored, std::set<std::string>* expected_workers) {
  auto job = std::make_unique<JobRuntime>();
  job->record = std::move(stored.record);
  job->attempts = std::move(stored.attempts);
  job->last_log = stored.last_log;
  job->last_metric = stored.last_metric;
  const MonotonicTime now = clock_.Now();
  job->placed = now;
  job->progressed = now;
  job->live.resize(job->record.members_size());
  job->stragglers.Reset(job->record.members_size());
  const records::MemberRecord* first =
      job->record.members_size() > 0 ? &job->record.members(0) : nullptr;
  job->first_step = first != nullptr ? first->joined().resume_step() + 1 : 0;
  if (job->record.phase() != records::EPOCH_PHASE_UNSPECIFIED) {
    for (const records::MemberRecord& member : job->record.members()) {
      if (!member.released()) expected_workers->insert(member.worker());
      if (member.exited().finished()) job->first_finish = now;
    }
  }
  for (const std::string& spare : job->record.spare_workers()) expected_workers->insert(spare);
  const JobId id = JobIdOf(job->job());
  last_position_ = std::max(last_position_, job->record.position());
  if (!job->job().request_id().empty()) {
    request_ids_[{job->job().owner(), job->job().request_id()}] = id;
  }
  directory_.Publish(Snapshot(*job), job->record.position());
  Track(*job);
  job->counted_state = job->job().state();
  // Tasks come in the order of their positions, after their array.
  if (!job->job().array_job().empty()) {
    arrays_[JobIdFromName(job->job().array_job())].push_back(id);
  }
  jobs_[id] = std::move(job);
}

JobRuntime* Coordinator::Find(const JobId& job) {
  const auto entry = jobs_.find(job);
  return entry == jobs_.end() ? nullptr : entry->second.get();
}

void Coordinator::Track(const JobRuntime& job) {
  const JobId id = JobIdOf(job.job());
  if (IsTerminal(job.job().state()) && job.record.phase() == records::EPOCH_PHASE_UNSPECIFIED) {
    unfinished_.erase(id);
  } else {
    unfinished_.insert(id);
  }
}

std::shared_ptr<const v1::Job> Coordinator::Snapshot(JobRuntime& job) {
  auto snapshot = std::make_shared<v1::Job>(job.job());
  for (const v1::Attempt& attempt : job.attempts) *snapshot->add_attempts() = attempt;
  return snapshot;
}

// -----------------------------------------------------------------------------------------------
// Verbs

JobId Coordinator::NewJobId(const std::string& name) {
  constexpr char kBase32[] = "abcdefghijklmnopqrstuvwxyz234567";
  while (true) {
    std::string id = name + "-";
    std::uint64_t bits = random_();
    for (int i = 0; i < 8; ++i, bits >>= 5) id += kBase32[bits & 31];
    if (!jobs_.contains(JobId(id))) return JobId(id);
  }
}

void Coordinator::CreateJob(const CallerIdentity& caller, const v1::CreateJobRequest& request,
                            CreateDone done) {
  const MonotonicTime start = clock_.Now();
  std::vector<v1::TrainingJob> tasks;
  absl::StatusOr<Admitted> admitted = [&]() -> absl::StatusOr<Admitted> {
    RETURN_IF_ERROR(CheckRequestId(request.request_id()));
    const DeviceMemory known = KnownMemory(request.job());
    ASSIGN_OR_RETURN(Admitted whole, admission_.Admit(request.job(), known));
    if (!whole.job.spec().has_array()) return whole;
    ASSIGN_OR_RETURN(tasks, AdmitTasks(whole.job, known));
    return whole;
  }();
  if (!admitted.ok()) {
    counters_.Add("fsdp_admission_refused_total",
                  absl::StatusCodeToString(admitted.status().code()));
    return done(admitted.status());
  }

  auto response = std::make_shared<v1::CreateJobResponse>();
  *response->mutable_plan() = std::move(admitted->plan);
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  for (std::string& warning : CapacityWarnings(admitted->job)) {
    admitted->warnings.push_back(std::move(warning));
  }
  const std::uint64_t fingerprint = Fingerprint(request.job());
  const auto known = request_ids_.find({caller.subject, request.request_id()});
  if (!request.request_id().empty() && known != request_ids_.end()) {
    JobRuntime& job = *jobs_.at(known->second);
    if (job.record.spec_fingerprint() != fingerprint) {
      return done(WithInfo(absl::AlreadyExistsError(absl::StrCat(
                               "request_id ", request.request_id(), " was used for ",
                               job.job().name(), " with another spec: use a new request_id")),
                           "REQUEST_ID_REUSED",
                           {{"request_id", request.request_id()}, {"job", job.job().name()}}));
    }
    response->set_existing(true);
    *response->mutable_job() = *Snapshot(job);
    // Behind the first call's records in the store's order: durable when this returns.
    return Persist({}, [response, done = std::move(done)](absl::Status status) {
      if (!status.ok()) return done(status);
      done(std::move(*response));
    });
  }
  // A repeat has been answered: what holds for new jobs is not asked of it.
  if (absl::Status status = CheckNew(request, admitted->job, tasks); !status.ok()) {
    return done(status);
  }

  auto job = std::make_unique<JobRuntime>();
  v1::Job& record = job->mutable_job();
  *record.mutable_spec() = std::move(admitted->job);
  for (std::string& warning : admitted->warnings) record.add_warnings(std::move(warning));
  if (request.validate_only()) {
    *response->mutable_job() = record;
    return done(std::move(*response));
  }
  const JobId id = NewJobId(record.spec().metadata().name());
  record.set_name(JobName(id));
  record.set_owner(caller.subject);
  record.set_request_id(request.request_id());
  *record.mutable_create_time() = ToTimestamp(clock_.WallNow());
  job->record.set_position(++last_position_);
  job->record.set_spec_fingerprint(fingerprint);
  if (!request.request_id().empty()) request_ids_[{caller.subject, request.request_id()}] = id;

  JobRuntime& stored = *(jobs_[id] = std::move(job));
  Extra extra;
  auto snapshot = std::make_shared<JobSnapshot>();
  extra.snapshot = snapshot.get();
  extra.done = [this, start, response, snapshot, done = std::move(done)](absl::Status status) {
    counters_.Observe("fsdp_submit_seconds", clock_.Now() - start);
    if (!status.ok()) return done(status);
    *response->mutable_job() = **snapshot;
    done(std::move(*response));
  };
  if (!tasks.empty()) return EnqueueArray(stored, std::move(tasks), std::move(extra));
  Apply(stored, [](JobController& controller) { controller.Enqueue(); }, std::move(extra));
}

absl::StatusOr<v1::Plan> Coordinator::PlanJob(const CallerIdentity& /*caller*/,
                                              const v1::TrainingJob& job) const {
  const DeviceMemory known = KnownMemory(job);
  ASSIGN_OR_RETURN(Admitted admitted, admission_.Admit(job, known));
  ASSIGN_OR_RETURN(const PlanInput input,
                   PlanInputFromJob(admitted.job, WorldSizeOf(admitted.job),
                                    known.largest_first.empty() ? 0 : known.largest_first.front()));
  *admitted.plan.mutable_memory_advice() = AdviseOnMemory(input);
  for (std::string& warning : admitted.warnings) admitted.plan.add_warnings(std::move(warning));
  return std::move(admitted.plan);
}

void Coordinator::RunVerb(const JobId& id, const ArrayVerb& verb, JobDone done) {
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  JobRuntime* job = Find(id);
  if (job == nullptr) return done(NoSuchJob(id.value()));
  if (IsArray(*job)) return RunArrayVerb(*job, verb, std::move(done));
  Effects effects;
  JobController controller(*job, options_, Now(), effects);
  if (absl::Status verdict = verb.run(controller); !verdict.ok()) return done(verdict);
  auto snapshot = std::make_shared<JobSnapshot>();
  Extra extra;
  extra.snapshot = snapshot.get();
  extra.done = [snapshot, warnings = effects.warnings,
                done = std::move(done)](absl::Status status) {
    if (!status.ok()) return done(status);
    done(JobReply{**snapshot, warnings});
  };
  CarryOut(*job, std::move(effects), std::move(extra));
}

void Coordinator::CancelJob(const CallerIdentity& caller, const JobId& job,
                            const std::string& reason, JobDone done) {
  LOG_INFO("%s: cancel by %s", job.value(), caller.subject);
  RunVerb(job,
          {.name = "cancelled",
           .run = [&](JobController& controller) { return controller.Cancel(reason); }},
          std::move(done));
}

void Coordinator::SuspendJob(const CallerIdentity& caller, const JobId& job,
                             const std::string& reason, JobDone done) {
  LOG_INFO("%s: suspend by %s", job.value(), caller.subject);
  RunVerb(job,
          {.name = "suspended",
           .run = [&](JobController& controller) { return controller.Suspend(reason); }},
          std::move(done));
}

void Coordinator::ResumeJob(const CallerIdentity& caller, const JobId& job, JobDone done) {
  LOG_INFO("%s: resume by %s", job.value(), caller.subject);
  RunVerb(job,
          {.name = "resumed", .run = [](JobController& controller) { return controller.Resume(); }},
          std::move(done));
}

void Coordinator::RestartJob(const CallerIdentity& caller, const JobId& job,
                             const std::string& reason, JobDone done) {
  LOG_INFO("%s: restart by %s", job.value(), caller.subject);
  // Of an array those that ended without success; one that runs is restarted by its own name.
  RunVerb(job,
          {.name = "restarted",
           .run = [&](JobController& controller) { return controller.Restart(reason); },
           .wants =
               [](v1::JobState state) {
                 return state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED;
               }},
          std::move(done));
}

void Coordinator::DeleteJob(const CallerIdentity& caller, const JobId& job,
                            std::function<void(absl::Status)> done) {
  LOG_INFO("%s: delete by %s", job.value(), caller.subject);
  const std::lock_guard lock(mutex_);
  absl::Status status = CheckServing();
  if (status.ok()) status = EraseJob(job, done);
  if (!status.ok()) done(status);
}

absl::Status Coordinator::EraseJob(const JobId& id, std::function<void(absl::Status)> done) {
  JobRuntime* job = Find(id);
  if (job == nullptr) return NoSuchJob(id.value());
  RETURN_IF_ERROR(CheckErasable(*job));
  if (!job->job().request_id().empty()) {
    request_ids_.erase({job->job().owner(), job->job().request_id()});
  }
  StoreBatch batch;
  batch.deleted_jobs = WithTasks(id);
  arrays_.erase(id);
  for (const JobId& gone : batch.deleted_jobs) {
    jobs_.erase(gone);
    profiles_.Forget(gone);
  }
  const std::vector<JobId> ids = batch.deleted_jobs;
  Persist(std::move(batch), [this, ids, done = std::move(done)](absl::Status status) {
    if (status.ok()) {
      for (const JobId& gone : ids) directory_.Remove(gone);
    }
    if (done) done(status);
  });
  return absl::OkStatus();
}

// -----------------------------------------------------------------------------------------------
// Carrying out

void Coordinator::Apply(JobRuntime& job, const std::function<void(JobController&)>& event) {
  Apply(job, event, Extra());
}

void Coordinator::Apply(JobRuntime& job, const std::function<void(JobController&)>& event,
                        Extra extra) {
  Effects effects;
  JobController controller(job, options_, Now(), effects);
  event(controller);
  CarryOut(job, std::move(effects), std::move(extra));
}

StoreBatch Coordinator::BatchOf(JobRuntime& job, Effects& effects, const Extra& extra) {
  const JobId id = JobIdOf(job.job());
  StoreBatch batch;
  if (effects.job_changed) batch.jobs.push_back(job.record);
  if (effects.attempt_changed) batch.attempts.push_back({id, job.attempts.back()});
  for (v1::JobEvent& event : effects.events) batch.events.push_back({id, std::move(event)});
  for (v1::LogEntry& entry : effects.logs) batch.logs.push_back({id, std::move(entry)});
  for (v1::StepMetrics& entry : effects.metrics) batch.metrics.push_back({id, std::move(entry)});
  for (const std::int64_t step : effects.dropped_checkpoints) {
    batch.dropped_checkpoints.push_back({id, step});
  }
  for (v1::CheckpointInfo& checkpoint : effects.checkpoints) {
    batch.checkpoints.push_back({id, std::move(checkpoint)});
  }
  if (effects.rendezvous_cleared) batch.cleared_rendezvous.push_back(id);
  for (auto& [name, value] : effects.rendezvous) {
    batch.rendezvous.push_back({id, Epoch(job.job().epoch()), name, std::move(value)});
  }
  if (extra.worker) batch.workers.push_back(*extra.worker);
  return batch;
}

void Coordinator::CarryOut(JobRuntime& job, Effects effects, Extra extra) {
  auto messages = std::move(extra.messages);
  const auto address = [&](const Outgoing& out) -> std::shared_ptr<WorkerSink> {
    const WorkerEntry* worker = workers_.Find(out.worker);
    if (worker == nullptr || worker->record.incarnation() != out.incarnation) return nullptr;
    return worker->sink;
  };
  for (const Outgoing& out : effects.at_once) {
    if (const auto sink = address(out)) sink->Send(out.message);
  }
  for (Outgoing& out : effects.when_durable) {
    if (auto sink = address(out)) messages.emplace_back(std::move(sink), std::move(out.message));
  }
  Count(job, effects);

  JobSnapshot snapshot;
  const MonotonicTime now = clock_.Now();
  if (effects.job_changed || extra.snapshot != nullptr) {
    job.mutable_job().set_revision(job.job().revision() + 1);
    effects.job_changed = true;
    job.progress_dirty = false;
    job.progress_published = now;
    job.progress_stored = now;
    snapshot = Snapshot(job);
    if (extra.snapshot != nullptr) *extra.snapshot = snapshot;
  }
  SyncAssignments(job);
  if (effects.spares_changed) SyncSpares(job);
  Track(job);
  if (effects.reschedule || effects.spares_changed) WantSchedule();

  const bool streams_changed =
      !effects.events.empty() || !effects.logs.empty() || !effects.metrics.empty();
  const bool nothing = snapshot == nullptr && !streams_changed && messages.empty() &&
                       !extra.worker && !extra.done && effects.rendezvous.empty();
  if (nothing) return;
  const std::int64_t position = job.record.position();
  const JobId id = JobIdOf(job.job());
  Persist(BatchOf(job, effects, extra),
          [this, id, snapshot, position, streams_changed, messages = std::move(messages),
           done = std::move(extra.done)](absl::Status status) {
            if (status.ok()) {
              for (const auto& [sink, message] : messages) sink->Send(message);
              if (snapshot != nullptr) {
                directory_.Publish(snapshot, position);
              } else if (streams_changed) {
                directory_.Notify(id);
              }
            }
            if (done) done(status);
          });
  SyncArray(job);
}

void Coordinator::Count(const JobRuntime& job, const Effects& effects) {
  const auto label = [](v1::FailureCause cause) {
    return MetricLabelValue(v1::FailureCause_Name(cause), "FAILURE_CAUSE_");
  };
  const std::string cause = label(job.job().root_cause().cause());
  if (effects.restart_cause) {
    counters_.Add("fsdp_job_restarts_total", label(*effects.restart_cause));
  }
  if (effects.detection) {
    counters_.Observe("fsdp_failure_detection_seconds", *effects.detection, cause);
  }
  if (effects.recovery) counters_.Observe("fsdp_recovery_seconds", *effects.recovery, cause);
  if (effects.start) counters_.Observe("fsdp_job_start_seconds", *effects.start);
  if (effects.rank_change != 0) {
    counters_.Add("fsdp_job_rank_changes_total", effects.rank_change > 0 ? "grown" : "shrunk");
  }
  if (effects.straggler_excluded) counters_.Add("fsdp_stragglers_excluded_total");
  if (!effects.checkpoints.empty()) counters_.Add("fsdp_checkpoints_published_total");
  for (const v1::JobEvent& event : effects.events) {
    LOG_INFO("%s: %s %s", event.job(), event.type(), event.message());
    if (IsTerminal(event.state()) && !IsArray(job)) {
      counters_.Add("fsdp_jobs_finished_total",
                    MetricLabelValue(v1::JobState_Name(event.state()), "JOB_STATE_"));
    }
  }
}

void Coordinator::Persist(StoreBatch batch, std::function<void(absl::Status)> done) {
  store_->Write(std::move(batch), [this, done = std::move(done)](absl::Status status) {
    if (!status.ok()) {
      status = WithInfo(std::move(status), "STORE_FAILED", {{"state_dir", options_.state_dir}});
      {
        const std::lock_guard lock(failure_mutex_);
        store_failure_ = status;
      }
      if (on_fatal_) on_fatal_(status);
    }
    if (done) done(std::move(status));
  });
}

void Coordinator::SyncAssignments(const JobRuntime& job) {
  const JobId id = JobIdOf(job.job());
  const bool alive = job.record.phase() != records::EPOCH_PHASE_UNSPECIFIED;
  for (const records::MemberRecord& member : job.record.members()) {
    WorkerEntry* worker = workers_.Find(WorkerId(member.worker()));
    if (worker == nullptr || worker->record.incarnation() != member.incarnation()) continue;
    if (alive && !member.released()) {
      worker->assigned = Assignment{id, job.job().epoch(), member.rank()};
    } else if (worker->assigned && worker->assigned->job == id &&
               worker->assigned->epoch == job.job().epoch()) {
      worker->assigned.reset();
    }
  }
}

}  // namespace fsdp::coordinator

// Coordinator: deadlines and scheduling.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/queue/job_queue.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// A tick that comes this late means that the process itself stood still (SIGSTOP, a suspended
// machine): workers are not to blame for what it did not hear.
constexpr absl::Duration kOwnPause = absl::Seconds(2);
// The head of the queue is placed in full; what is behind it gets its position as reason.
constexpr size_t kMaxPlacedPerPass = 256;
// After a pass the lock is left to others for this many times its length: a pass over a long queue
// takes milliseconds, and every submit asks for one.
constexpr int kScheduleRest = 5;
constexpr absl::Duration kWaitReasonPeriod = absl::Milliseconds(500);
// Per-job series of one scrape.
constexpr size_t kMaxJobSeries = 500;
constexpr absl::Duration kExpiryPeriod = absl::Seconds(5);

}  // namespace

void Coordinator::WantSchedule() {
  schedule_wanted_ = true;
  wake_.notify_one();
}

bool Coordinator::WaitForWork(absl::Duration period) {
  std::unique_lock lock(mutex_);
  const absl::Duration pause = next_schedule_ - clock_.Now();
  if (schedule_wanted_ && pause > absl::ZeroDuration()) {
    wake_.wait_for(lock, absl::ToChronoMicroseconds(std::min(pause, period)),
                   [this] { return stopping_; });
    return !stopping_;
  }
  wake_.wait_for(lock, absl::ToChronoMicroseconds(period),
                 [this] { return stopping_ || schedule_wanted_; });
  return !stopping_;
}

void Coordinator::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

void Coordinator::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  for (auto& [id, worker] : workers_.entries()) {
    if (worker.sink != nullptr) worker.sink->Close(CheckServing());
    worker.sink = nullptr;
  }
  files_.EndAll(CheckServing());
}

absl::Status Coordinator::CheckServing() const {
  {
    const std::lock_guard lock(failure_mutex_);
    RETURN_IF_ERROR(store_failure_);
  }
  return draining_ ? Draining() : absl::OkStatus();
}

void Coordinator::NoticeOwnPause(TimePoint now) {
  if (!last_tick_ || now.mono - *last_tick_ <= kOwnPause) return;
  const absl::Duration pause = now.mono - *last_tick_;
  last_tick_ = now.mono;
  LOG_WARNING("the coordinator stood still for %s",
              absl::FormatDuration(absl::Trunc(pause, absl::Milliseconds(100))));
  for (auto& [id, worker] : workers_.entries()) {
    worker.facts.heard = std::min(worker.facts.heard + pause, now.mono);
    worker.facts.disconnected = std::min(worker.facts.disconnected + pause, now.mono);
  }
  for (const JobId& id : unfinished_) {
    Effects none;
    JobController(*jobs_.at(id), options_, now, none).OnStoodStill(pause);
  }
}

void Coordinator::Tick() {
  const std::lock_guard lock(mutex_);
  const TimePoint now = Now();
  NoticeOwnPause(now);
  last_tick_ = now.mono;
  CheckWorkers(now);
  CheckJobs(now);
  files_.Expire(now.mono);
  if (now.mono - last_expiry_ > kExpiryPeriod) {
    last_expiry_ = now.mono;
    DeleteExpired(now);
    ForgetWorkers(now);
  }
  const bool due = schedule_wanted_ || now.mono - last_wait_reasons_ > kWaitReasonPeriod;
  if (!due || now.mono < next_schedule_) return;
  Schedule(now);
  const MonotonicTime end = clock_.Now();
  next_schedule_ = end + kScheduleRest * (end - now.mono);
}

void Coordinator::CheckWorkers(TimePoint now) {
  for (auto& [id, worker] : workers_.entries()) {
    if (worker.liveness == Liveness::kLost) continue;
    const Liveness liveness = CheckStale(now.mono, worker.facts, options_.timing);
    if (liveness == worker.liveness) continue;
    WantSchedule();
    if (liveness != Liveness::kLost) {
      if (liveness == Liveness::kSuspect) LOG_WARNING("worker %s is silent", id.value());
      worker.liveness = liveness;
      continue;
    }
    const absl::Duration silent =
        now.mono - (worker.facts.connected ? worker.facts.heard : worker.facts.disconnected);
    const std::string seconds = absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(100)));
    const std::string reason =
        worker.facts.connected
            ? absl::StrCat("no heartbeat for ", seconds,
                           " (its host or the network to it is down, or fsdp-worker stands still)")
            : absl::StrCat("its stream closed and was not back within ", seconds,
                           " (fsdp-worker ended, or its host)");
    LoseWorker(worker, worker.record.incarnation(), reason, silent);
  }
}

void Coordinator::ForgetWorkers(TimePoint now) {
  StoreBatch batch;
  const absl::Duration patience = options_.timing.forget_lost_after;
  for (const WorkerId& id : workers_.Forgettable(now.wall, patience)) {
    if (InSomeEpoch(id)) continue;
    LOG_INFO("worker %s is forgotten: lost for more than %s", id.value(),
             absl::FormatDuration(patience));
    workers_.Forget(id);
    batch.deleted_workers.push_back(id);
  }
  if (!batch.deleted_workers.empty()) Persist(std::move(batch), nullptr);
}

bool Coordinator::InSomeEpoch(const WorkerId& worker) const {
  return std::any_of(unfinished_.begin(), unfinished_.end(), [&](const JobId& id) {
    const records::JobRecord& record = jobs_.at(id)->record;
    return record.phase() != records::EPOCH_PHASE_UNSPECIFIED &&
           std::any_of(record.members().begin(), record.members().end(),
                       [&](const auto& member) { return member.worker() == worker.value(); });
  });
}

void Coordinator::CheckJobs(TimePoint now) {
  // Apply may take jobs out of the set.
  const std::vector<JobId> ids(unfinished_.begin(), unfinished_.end());
  for (const JobId& id : ids) {
    JobRuntime& job = *jobs_.at(id);
    if (job.record.has_earliest_start() && FromTimestamp(job.record.earliest_start()) <= now.wall) {
      schedule_wanted_ = true;
    }
    const bool publish = job.progress_dirty && now.mono - job.progress_published >=
                                                   options_.timing.progress_publish_period;
    if (job.record.phase() == records::EPOCH_PHASE_UNSPECIFIED && !publish) continue;
    Effects effects;
    JobController controller(job, options_, now, effects);
    controller.OnTick();
    if (publish && now.mono - job.progress_stored >= options_.timing.progress_store_period) {
      effects.job_changed = true;
      effects.attempt_changed = effects.attempt_changed || !job.attempts.empty();
    }
    if (publish && !effects.job_changed) {
      // Shown, not stored: the metrics that it comes from are.
      job.mutable_job().set_revision(job.job().revision() + 1);
      job.progress_dirty = false;
      job.progress_published = now.mono;
      Persist({}, [this, snapshot = Snapshot(job),
                   position = job.record.position()](absl::Status status) {
        if (status.ok()) directory_.Publish(snapshot, position);
      });
    }
    CarryOut(job, std::move(effects), Extra());
  }
}

void Coordinator::DeleteExpired(TimePoint now) {
  std::vector<JobId> expired;
  for (const auto& [id, job] : jobs_) {
    const std::int64_t ttl = job->job().spec().spec().limits().ttl_after_finished_seconds();
    if (ttl > 0 && IsTerminal(job->job().state()) && !unfinished_.contains(id) &&
        FromTimestamp(job->job().end_time()) + absl::Seconds(ttl) <= now.wall) {
      expired.push_back(id);
    }
  }
  for (const JobId& id : expired) {
    if (absl::Status status = EraseJob(id, nullptr); !status.ok()) {
      LOG_WARNING("%s: %s", id.value(), status.ToString());
    }
  }
}

std::vector<QueuedDemand> Coordinator::CollectQueue(TimePoint now) {
  std::vector<QueuedDemand> queue;
  for (const JobId& id : unfinished_) {
    JobRuntime& job = *jobs_.at(id);
    Effects unused;
    const JobController controller(job, options_, now, unused);
    const v1::JobSpec& spec = job.job().spec().spec();
    const bool recovering = controller.ComesBack();
    if (!recovering && !controller.WantsPlacement()) continue;
    if (recovering && job.record.has_earliest_start()) ++wait_kinds_[{spec.queue(), "backoff"}];
    QueuedDemand& item = queue.emplace_back();
    item.entry = {id, spec.queue(), spec.priority(), job.record.position()};
    item.recovering = recovering;
  }
  std::sort(queue.begin(), queue.end(), [](const QueuedDemand& a, const QueuedDemand& b) {
    return GoesBefore(a.entry, b.entry);
  });
  for (size_t i = 0; i < std::min(queue.size(), kMaxPlacedPerPass); ++i) {
    const JobRuntime& job = *jobs_.at(queue[i].entry.job);
    Demand& demand = queue[i].demand;
    demand = DemandOf(job.job().spec().spec().resources());
    for (const std::string& worker : job.record.excluded_workers()) {
      demand.excluded.emplace_back(worker);
    }
    for (const records::MemberRecord& member : job.record.members()) {
      demand.previous.emplace_back(member.worker());
    }
  }
  return queue;
}

void Coordinator::Schedule(TimePoint now) {
  schedule_wanted_ = false;
  last_wait_reasons_ = now.mono;
  wait_kinds_.clear();
  std::vector<QueuedDemand> queue = CollectQueue(now);
  std::vector<QueueEntry> entries;
  entries.reserve(queue.size());
  std::set<JobId> recovering;
  for (const QueuedDemand& item : queue) {
    entries.push_back(item.entry);
    if (item.recovering) recovering.insert(item.entry.job);
  }
  if (recovering.size() == queue.size()) return;
  const std::vector<std::int32_t> positions = QueuePositions(entries);

  queue.resize(std::min(queue.size(), kMaxPlacedPerPass));
  const std::vector<QueueDecision> decisions =
      ScheduleQueue(std::move(queue), workers_.View(now.mono, options_.timing));
  for (size_t i = 0; i < entries.size(); ++i) {
    if (recovering.contains(entries[i].job)) continue;
    JobRuntime& job = *jobs_.at(entries[i].job);
    if (i < decisions.size() && decisions[i].decision.placement) {
      PlaceJob(job, *decisions[i].decision.placement);
      continue;
    }
    const std::string reason = i < decisions.size()
                                   ? decisions[i].decision.reason
                                   : absl::StrCat("waits behind ", i, " jobs of its cluster");
    const bool beyond = i < decisions.size() && decisions[i].decision.beyond_capacity;
    const bool behind = i >= decisions.size() || decisions[i].decision.behind;
    ++wait_kinds_[{entries[i].queue, beyond   ? "beyond_capacity"
                                     : behind ? "behind_others"
                                              : "insufficient_devices"}];
    // Why it waits is told, not stored: it changes with every other job.
    Effects effects;
    JobController controller(job, options_, now, effects);
    controller.Wait(reason, positions[i]);
    if (!effects.job_changed) continue;
    job.mutable_job().set_revision(job.job().revision() + 1);
    Persist({}, [this, snapshot = Snapshot(job),
                 position = job.record.position()](absl::Status status) {
      if (status.ok()) directory_.Publish(snapshot, position);
    });
  }
}

void Coordinator::PlaceJob(JobRuntime& job, const Placement& placement) {
  std::vector<records::MemberRecord> members;
  std::map<std::string, int> on_host;
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    const WorkerEntry& worker = *workers_.Find(placement[rank]);
    records::MemberRecord& member = members.emplace_back();
    member.set_rank(static_cast<std::int32_t>(rank));
    member.set_worker(worker.record.id());
    member.set_incarnation(worker.record.incarnation());
    member.set_host(worker.record.host());
    member.set_address(worker.rank_address);
    const v1::DeviceInfo& device = worker.record.device();
    member.set_device(
        absl::StrCat(device.type() == v1::DEVICE_TYPE_CUDA ? "cuda:" : "cpu:", device.index()));
    member.set_device_memory_bytes(device.memory_bytes());
    member.set_local_rank(on_host[worker.record.host()]++);
  }
  for (records::MemberRecord& member : members) {
    member.set_local_world_size(on_host[member.host()]);
  }
  if (job.job().attempt() == 0) {
    counters_.Observe("fsdp_queue_wait_seconds",
                      clock_.WallNow() - FromTimestamp(job.job().create_time()));
  }
  Apply(job, [&](JobController& controller) { controller.Place(members); });
}

CoordinatorStats Coordinator::Stats() const {
  const std::lock_guard lock(mutex_);
  CoordinatorStats stats;
  for (const auto& [id, job] : jobs_) ++stats.jobs[job->job().state()];
  for (const JobId& id : unfinished_) {
    const JobRuntime& job = *jobs_.at(id);
    for (const v1::Attempt& attempt : job.attempts) ++stats.attempts[attempt.state()];
    if (stats.unfinished.size() < kMaxJobSeries) {
      stats.unfinished.push_back(
          {id.value(), job.job().state(), job.job().attempt(), job.job().epoch()});
    }
  }
  stats.start_timestamp_seconds = absl::ToDoubleSeconds(start_time_ - absl::UnixEpoch());
  stats.queue = wait_kinds_;
  const MonotonicTime now = clock_.Now();
  for (const auto& [id, worker] : workers_.entries()) {
    ++stats.workers[DescribeWorker(worker).state()];
    if (worker.facts.connected) {
      stats.heartbeat_age_seconds[id.value()] = absl::ToDoubleSeconds(now - worker.facts.heard);
    }
  }
  return stats;
}

}  // namespace fsdp::coordinator

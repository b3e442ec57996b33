// Coordinator: deadlines, and what a scrape sees.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// A tick that comes this late means that the process itself stood still (SIGSTOP, a suspended
// machine): workers are not to blame for what it did not hear.
constexpr absl::Duration kOwnPause = absl::Seconds(2);
// After a pass the lock is left to others for this many times its length: a pass over a long queue
// takes milliseconds, and every submit asks for one.
constexpr int kScheduleRest = 5;
constexpr absl::Duration kWaitReasonPeriod = absl::Milliseconds(500);
// Per-job series of one scrape.
constexpr size_t kMaxJobSeries = 500;
constexpr absl::Duration kExpiryPeriod = absl::Seconds(5);

// What a scrape shows of a job that is not finished.
CoordinatorStats::UnfinishedJob SeriesOf(const JobRuntime& runtime) {
  const v1::Job& job = runtime.job();
  CoordinatorStats::UnfinishedJob series;
  series.id = JobIdFromName(job.name()).value();
  series.state = job.state();
  series.attempt = job.attempt();
  series.epoch = job.epoch();
  series.step = job.progress().step();
  const v1::CheckpointSpec& checkpoint = job.spec().spec().checkpoint();
  if (!checkpoint.dir().empty() && checkpoint.every_steps() > 0) {
    // A job may have begun with another one's.
    series.checkpoint_step = std::max(job.checkpoint().step(), runtime.first_step - 1);
    series.checkpoint_interval_steps = checkpoint.every_steps();
  }
  if (job.state() != v1::JOB_STATE_RUNNING) return series;
  for (const v1::RankStatus& rank : job.ranks()) {
    series.ranks.push_back({rank.straggler_score(), rank.collective_skew_seconds()});
  }
  return series;
}

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
  dumps_.EndAll(CheckServing());
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
  dumps_.Expire(now.mono);
  CheckProfiles();
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

CoordinatorStats Coordinator::Stats() const {
  const std::lock_guard lock(mutex_);
  CoordinatorStats stats;
  // An array's tasks are its jobs.
  for (const auto& [id, job] : jobs_) {
    if (!IsArray(*job)) ++stats.jobs[job->job().state()];
  }
  for (const JobId& id : unfinished_) {
    const JobRuntime& job = *jobs_.at(id);
    if (IsArray(job)) continue;
    for (const v1::Attempt& attempt : job.attempts) ++stats.attempts[attempt.state()];
    if (stats.unfinished.size() < kMaxJobSeries) {
      stats.unfinished.push_back(SeriesOf(job));
    }
  }
  stats.start_timestamp_seconds = absl::ToDoubleSeconds(start_time_ - absl::UnixEpoch());
  stats.queue = wait_kinds_;
  stats.queues = queue_policies_.empty() ? std::vector<v1::Queue>() : QueuesLocked();
  stats.maintenance = maintenance_.mode();
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

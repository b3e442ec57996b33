// Coordinator: arrays. An array is a job that holds no devices; its tasks are jobs like any other.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/queue/job_array.h"
#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {
namespace {

// Warnings of tasks that a reply repeats.
constexpr std::size_t kMaxWarnings = 5;

// One batch of several; what they have of streams and workers stays out, as new jobs have none.
void Append(StoreBatch part, StoreBatch* whole) {
  for (auto& record : part.jobs) whole->jobs.push_back(std::move(record));
  for (auto& event : part.events) whole->events.push_back(std::move(event));
}

}  // namespace

bool IsArray(const JobRuntime& job) { return job.job().spec().spec().has_array(); }

JobRuntime& Coordinator::AddTask(const JobRuntime& array, int index, v1::TrainingJob spec) {
  auto task = std::make_unique<JobRuntime>();
  const JobId id = TaskId(JobIdOf(array.job()), index);
  v1::Job& record = task->mutable_job();
  *record.mutable_spec() = std::move(spec);
  record.set_name(JobName(id));
  record.set_owner(array.job().owner());
  *record.mutable_create_time() = array.job().create_time();
  record.set_array_job(array.job().name());
  record.set_array_index(index);
  task->record.set_position(++last_position_);
  JobRuntime& stored = *(jobs_[id] = std::move(task));
  arrays_[JobIdOf(array.job())].push_back(id);
  return stored;
}

void Coordinator::EnqueueArray(JobRuntime& array, std::vector<v1::TrainingJob> tasks, Extra extra) {
  StoreBatch batch;
  std::vector<std::pair<JobSnapshot, std::int64_t>> snapshots;
  const auto enqueue = [&](JobRuntime& job) {
    Effects effects;
    JobController controller(job, options_, Now(), effects);
    controller.Enqueue();
    job.counted_state = job.job().state();
    job.mutable_job().set_revision(job.job().revision() + 1);
    return effects;
  };
  std::vector<v1::JobState> states;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    JobRuntime& task = AddTask(array, static_cast<int>(i), std::move(tasks[i]));
    Effects effects = enqueue(task);
    states.push_back(task.job().state());
    snapshots.emplace_back(Snapshot(task), task.record.position());
    Append(BatchOf(task, effects, Extra()), &batch);
    Track(task);
  }
  Effects effects = enqueue(array);
  const ArraySummary summary =
      SummarizeArray(array.job().spec().spec().array(), states, array.job().state());
  JobController(array, options_, Now(), effects).OnTasks(summary);
  snapshots.emplace_back(Snapshot(array), array.record.position());
  if (extra.snapshot != nullptr) *extra.snapshot = snapshots.back().first;
  Append(BatchOf(array, effects, Extra()), &batch);
  Track(array);
  WantSchedule();
  // All of it or nothing: an array never has only some of its tasks.
  Persist(std::move(batch), [this, snapshots = std::move(snapshots),
                             done = std::move(extra.done)](absl::Status status) {
    if (status.ok()) {
      for (const auto& [snapshot, position] : snapshots) directory_.Publish(snapshot, position);
    }
    if (done) done(status);
  });
}

void Coordinator::SyncArray(JobRuntime& task) {
  if (task.job().array_job().empty() || task.counted_state == task.job().state()) return;
  const bool ended = IsTerminal(task.job().state());
  task.counted_state = task.job().state();
  JobRuntime* array = Find(JobIdFromName(task.job().array_job()));
  if (array == nullptr) return;
  if (arrays_deferred_ && !ended) return;
  Apply(*array, [&](JobController& controller) {
    if (ended) controller.OnTaskEnded(task.job());
    if (!arrays_deferred_) controller.OnTasks(Summary(*array));
  });
}

ArraySummary Coordinator::Summary(const JobRuntime& array) const {
  std::vector<v1::JobState> states;
  for (const JobId& id : arrays_.at(JobIdOf(array.job()))) {
    states.push_back(jobs_.at(id)->job().state());
  }
  return SummarizeArray(array.job().spec().spec().array(), states, array.job().state());
}

void Coordinator::RunArrayVerb(JobRuntime& array, const ArrayVerb& verb, JobDone done) {
  absl::Status refusal;
  std::size_t taken = 0;
  auto warnings = std::make_shared<std::vector<std::string>>();
  // One change of the array for all of its tasks'.
  arrays_deferred_ = true;
  for (const JobId& id : arrays_.at(JobIdOf(array.job()))) {
    JobRuntime& task = *jobs_.at(id);
    if (verb.wants && !verb.wants(task.job().state())) continue;
    Effects effects;
    JobController controller(task, options_, Now(), effects);
    if (absl::Status verdict = verb.run(controller); !verdict.ok()) {
      if (refusal.ok()) refusal = std::move(verdict);
      continue;
    }
    ++taken;
    for (const std::string& warning : effects.warnings) {
      if (warnings->size() < kMaxWarnings) warnings->push_back(warning);
    }
    CarryOut(task, std::move(effects), Extra());
  }
  arrays_deferred_ = false;
  if (taken == 0) {
    return done(
        WithInfo(absl::FailedPreconditionError(absl::StrCat(
                     array.job().name(), " is ", StateName(array.job().state()), ": none of its ",
                     array.job().spec().spec().array().count(), " tasks can be ", verb.name,
                     refusal.ok() ? "" : absl::StrCat(", as ", refusal.message()))),
                 "JOB_STATE_CONFLICT",
                 {{"job", array.job().name()},
                  {"state", StateName(array.job().state())},
                  {"wanted", verb.name}}));
  }
  auto snapshot = std::make_shared<JobSnapshot>();
  Extra extra;
  extra.snapshot = snapshot.get();
  extra.done = [snapshot, warnings, done = std::move(done)](absl::Status status) {
    if (!status.ok()) return done(status);
    done(JobReply{**snapshot, *warnings});
  };
  Apply(
      array, [&](JobController& controller) { controller.OnTasks(Summary(array)); },
      std::move(extra));
}

absl::Status Coordinator::CheckErasable(const JobRuntime& job) const {
  if (!job.job().array_job().empty()) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(job.job().name(), " is a task of ", job.job().array_job(),
                                     ": delete the array, and its tasks go with it")),
                    "ARRAY_TASK", {{"job", job.job().name()}, {"array", job.job().array_job()}});
  }
  const auto tasks = arrays_.find(JobIdOf(job.job()));
  const bool busy = tasks != arrays_.end() &&
                    std::any_of(tasks->second.begin(), tasks->second.end(),
                                [&](const JobId& id) { return unfinished_.contains(id); });
  const bool erasable =
      IsTerminal(job.job().state()) && !unfinished_.contains(JobIdOf(job.job())) && !busy;
  if (erasable) return absl::OkStatus();
  return WithInfo(
      absl::FailedPreconditionError(
          absl::StrCat(job.job().name(), " is ", StateName(job.job().state()),
                       ": only a finished job can be deleted; cancel it first")),
      "JOB_STATE_CONFLICT",
      {{"job", job.job().name()}, {"state", StateName(job.job().state())}, {"wanted", "deleted"}});
}

std::vector<JobId> Coordinator::WithTasks(const JobId& id) const {
  std::vector<JobId> ids = {id};
  const auto tasks = arrays_.find(id);
  if (tasks != arrays_.end()) ids.insert(ids.end(), tasks->second.begin(), tasks->second.end());
  return ids;
}

}  // namespace fsdp::coordinator

// Coordinator: what a new job must have, besides a spec without errors.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/spec.h"
#include "proto/support/spec_array.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp::coordinator {

std::vector<std::string> Coordinator::CapacityWarnings(const v1::TrainingJob& job) const {
  const PlacementDecision decision =
      PlaceGang(LeastDemandOf(job), workers_.View(clock_.Now(), options_.timing));
  if (!decision.beyond_capacity) return {};
  return {absl::StrCat("the cluster as it is cannot hold this job: it ", decision.reason)};
}

DeviceMemory Coordinator::KnownMemory(const v1::TrainingJob& job) const {
  const std::lock_guard lock(mutex_);
  return workers_.KnownMemory(DeviceOf(job.spec().resources()));
}

absl::StatusOr<std::vector<v1::TrainingJob>> Coordinator::AdmitTasks(
    const v1::TrainingJob& array, const DeviceMemory& known) const {
  std::vector<v1::TrainingJob> tasks;
  const ArrayTasks jobs(array);
  const bool differ = array.spec().array().set_size() > 0;
  for (int index = 0; index < array.spec().array().count(); ++index) {
    SpecResult task = jobs.Job(index);
    // CheckJob has judged every task with the array.
    RETURN_IF_ERROR(SpecStatus(task.issues));
    if (differ) {
      absl::StatusOr<Admitted> admitted = admission_.Admit(task.job, known);
      if (!admitted.ok()) {
        return Annotate(admitted.status(), absl::StrCat("task ", index, " of the array"));
      }
      task.job = std::move(admitted->job);
    }
    // A task goes with its array.
    task.job.mutable_spec()->mutable_limits()->clear_ttl_after_finished_seconds();
    tasks.push_back(std::move(task.job));
  }
  return tasks;
}

absl::Status Coordinator::CheckNew(const v1::CreateJobRequest& request, const v1::TrainingJob& job,
                                   const std::vector<v1::TrainingJob>& tasks) const {
  RETURN_IF_ERROR(CheckQueue(job));
  for (const v1::TrainingJob& task : tasks) RETURN_IF_ERROR(CheckQueue(task));
  if (request.validate_only()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckOpen());
  const auto after = static_cast<std::int64_t>(unfinished_.size() + 1 + tasks.size());
  if (after <= options_.queue.max_unfinished_jobs) return absl::OkStatus();
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                      "the queue is full: ", unfinished_.size(), " jobs are not finished (limit ",
                      options_.queue.max_unfinished_jobs, ")")),
                  "QUEUE_FULL",
                  {{"unfinished_jobs", absl::StrCat(unfinished_.size())},
                   {"limit", absl::StrCat(options_.queue.max_unfinished_jobs)}});
}

absl::Status Coordinator::CheckQueue(const v1::TrainingJob& job) const {
  if (queue_policies_.empty()) return absl::OkStatus();
  const std::string& name = job.spec().queue();
  const auto policy = queue_policies_.find(name);
  SpecIssue issue;
  if (policy == queue_policies_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, ignored] : queue_policies_) names.push_back(known);
    issue.field = "spec.queue";
    issue.value = name;
    issue.message = "there is no such queue";
    issue.allowed = absl::StrJoin(names, ", ");
    issue.suggestion = Suggest(name, names);
    return WithInfo(SpecStatus({issue}), "SPEC_INVALID");
  }
  const Demand demand = LeastDemandOf(job);
  const DeviceLimits limits = policy->second.LimitsOf(demand.device);
  if (!limits.max || demand.world_size() <= *limits.max) return absl::OkStatus();
  issue.field = "spec.resources";
  issue.message = absl::StrCat(NeedsText(demand), ", and queue '", name, "' may hold at most ",
                               *limits.max, "; ask for fewer, or name another queue");
  return WithInfo(SpecStatus({issue}), "SPEC_INVALID");
}

absl::Status Coordinator::CheckOpen() const {
  if (maintenance_.mode() != v1::MAINTENANCE_MODE_CLOSED) return absl::OkStatus();
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("no jobs are taken: ", MaintenanceText())),
      "MAINTENANCE", {{"reason", maintenance_.reason()}});
}

}  // namespace fsdp::coordinator

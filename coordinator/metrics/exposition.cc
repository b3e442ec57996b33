#include "coordinator/metrics/exposition.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/version.h"
#include "proto/support/metric_family.h"
#include "proto/support/metric_table.h"

namespace fsdp::coordinator {

namespace {

// One series per value of the enum but the unspecified one, those without anything at 0.
template <typename State>
void AddByState(const char* name, const std::map<State, std::int64_t>& counts,
                std::string_view prefix, MetricFamilies* families) {
  const auto& values = *google::protobuf::GetEnumDescriptor<State>();
  for (int i = 1; i < values.value_count(); ++i) {
    const auto count = counts.find(static_cast<State>(values.value(i)->number()));
    families->Add(name, {MetricLabelValue(values.value(i)->name(), prefix)},
                  count == counts.end() ? 0 : static_cast<double>(count->second));
  }
}

void AddProgress(const CoordinatorStats::UnfinishedJob& job, MetricFamilies* families) {
  if (job.state == v1::JOB_STATE_RUNNING) {
    families->Add("fsdp_job_step", {job.id}, static_cast<double>(job.step));
  }
  if (job.checkpoint_step) {
    families->Add("fsdp_checkpoint_step", {job.id}, static_cast<double>(*job.checkpoint_step));
    families->Add("fsdp_checkpoint_interval_steps", {job.id},
                  static_cast<double>(job.checkpoint_interval_steps));
  }
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (job.ranks[rank].straggler_score <= 0) continue;
    const std::string label = std::to_string(rank);
    families->Add("fsdp_straggler_score_ratio", {job.id, label}, job.ranks[rank].straggler_score);
    families->Add("fsdp_collective_skew_seconds", {job.id, label},
                  job.ranks[rank].collective_skew_seconds);
  }
}

const char* DeviceLabel(v1::DeviceType device) {
  return device == v1::DEVICE_TYPE_CUDA ? "cuda" : "cpu";
}

// Of the queues that are configured: any other name is a user's, and as many as there are names.
void AddQueues(const std::vector<v1::Queue>& queues, MetricFamilies* families) {
  const auto each = [&](const char* name, auto&& value) {
    for (const v1::Queue& queue : queues) {
      if (!queue.configured()) continue;
      for (const v1::QueueUsage& usage : queue.usage()) {
        const std::optional<double> number = value(usage);
        if (number)
          families->Add(name, {queue.spec().name(), DeviceLabel(usage.device())}, *number);
      }
    }
  };
  using Usage = const v1::QueueUsage&;
  each("fsdp_queue_quota_devices",
       [](Usage usage) { return std::optional<double>(usage.quota()); });
  each("fsdp_queue_max_devices", [](Usage usage) {
    return usage.has_max() ? std::optional<double>(usage.max()) : std::nullopt;
  });
  each("fsdp_queue_used_devices", [](Usage usage) { return std::optional<double>(usage.used()); });
  each("fsdp_queue_borrowed_devices",
       [](Usage usage) { return std::optional<double>(usage.borrowed()); });
  each("fsdp_queue_waiting_devices",
       [](Usage usage) { return std::optional<double>(usage.waiting()); });
  each("fsdp_queue_share_ratio", [](Usage usage) { return std::optional<double>(usage.share()); });
}

void AddMaintenance(v1::MaintenanceMode mode, MetricFamilies* families) {
  families->Add("fsdp_maintenance", {"hold"}, mode == v1::MAINTENANCE_MODE_HOLD ? 1 : 0);
  families->Add("fsdp_maintenance", {"closed"}, mode == v1::MAINTENANCE_MODE_CLOSED ? 1 : 0);
}

}  // namespace

std::vector<prometheus::MetricFamily> CoordinatorCollectable::Collect() const {
  const CoordinatorStats stats = coordinator_.Stats();
  MetricFamilies families;
  AddByState("fsdp_jobs", stats.jobs, "JOB_STATE_", &families);
  for (const auto& job : stats.unfinished) {
    families.Add("fsdp_job_state",
                 {job.id, MetricLabelValue(v1::JobState_Name(job.state), "JOB_STATE_")}, 1);
  }
  for (const auto& job : stats.unfinished) {
    families.Add("fsdp_job_attempt", {job.id}, static_cast<double>(job.attempt));
  }
  for (const auto& job : stats.unfinished) {
    families.Add("fsdp_job_epoch", {job.id}, static_cast<double>(job.epoch));
  }
  for (const auto& job : stats.unfinished) AddProgress(job, &families);
  AddByState("fsdp_attempts", stats.attempts, "ATTEMPT_STATE_", &families);
  for (const auto& [key, count] : stats.queue) {
    families.Add("fsdp_queue_depth", {key.first, key.second}, static_cast<double>(count));
  }
  AddQueues(stats.queues, &families);
  AddMaintenance(stats.maintenance, &families);
  AddByState("fsdp_workers", stats.workers, "WORKER_STATE_", &families);
  for (const auto& [worker, age] : stats.heartbeat_age_seconds) {
    families.Add("fsdp_worker_heartbeat_age_seconds", {worker}, age);
  }
  counters_.AddTo(&families);
  transport_.AddTo(&families);
  families.Add("fsdp_coordinator_leader", {}, 1);
  families.Add("fsdp_build_info", {kVersion}, 1);
  families.Add("fsdp_start_timestamp_seconds", {}, stats.start_timestamp_seconds);
  return families.Take();
}

}  // namespace fsdp::coordinator

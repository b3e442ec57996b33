// Coordinator: queues and maintenance, for people.

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp::coordinator {
namespace {

// "HOLD" as people write it.
std::string ModeText(v1::MaintenanceMode mode) {
  return mode == v1::MAINTENANCE_MODE_CLOSED ? "closed" : "hold";
}

v1::QueueUsage UsageOf(const QueueLedger& ledger, const std::string& queue, v1::DeviceType device) {
  const DeviceLimits limits = ledger.LimitsOf(queue, device);
  const QueueBalance balance = ledger.Balance(queue, device);
  v1::QueueUsage usage;
  usage.set_device(device);
  usage.set_total(ledger.Total(device));
  usage.set_quota(limits.quota);
  if (limits.max) usage.set_max(*limits.max);
  usage.set_used(balance.used);
  usage.set_borrowed(ledger.Borrowed(queue, device));
  usage.set_yielding(balance.yielding);
  usage.set_waiting(balance.waiting);
  usage.set_share(ledger.Share(queue, device));
  return usage;
}

}  // namespace

void Coordinator::SetQueues(const v1::QueueConfig& config) {
  const std::lock_guard lock(mutex_);
  queue_config_ = config;
  queue_policies_ = PoliciesOf(config);
  queues_error_.clear();
  LOG_INFO("queues: %s", QueueNames(queue_policies_));
  for (const auto& [name, policy] : queue_policies_) {
    for (const PreemptionReason reason :
         {PreemptionReason::kReclaim, PreemptionReason::kPriority}) {
      counters_.Declare("fsdp_preemptions_total", name, LabelOf(reason));
    }
  }
  WantSchedule();
}

void Coordinator::RejectQueues(const absl::Status& error) {
  const std::lock_guard lock(mutex_);
  queues_error_ = std::string(error.message());
  counters_.Add("fsdp_queue_config_errors_total");
  LOG_WARNING("queues stay as they were: %s", queues_error_);
}

std::vector<v1::Queue> Coordinator::QueuesLocked() const {
  const TimePoint now = Now();
  const std::vector<QueuedDemand> waiting = CollectQueue(now);
  const std::vector<ActiveJob> running = ActiveJobs(waiting, now);
  const ClusterView view = workers_.View(now.mono, options_.timing);
  const QueueLedger ledger(queue_policies_, view, running, waiting);
  std::set<v1::DeviceType> devices;
  for (const WorkerView& worker : view.workers) devices.insert(worker.device);
  std::map<std::string, v1::Queue> queues;
  for (const std::string& name : ledger.queues()) {
    v1::Queue& queue = queues[name];
    queue.set_name("queues/" + name);
    queue.mutable_spec()->set_name(name);
  }
  for (const v1::QueueSpec& spec : queue_config_.queues()) {
    v1::Queue& queue = queues[spec.name()];
    *queue.mutable_spec() = spec;
    queue.set_configured(true);
    for (const v1::DeviceQuota& quota : spec.devices()) devices.insert(quota.device());
  }
  const auto count = [&](const QueueEntry& entry) -> v1::Queue& { return queues.at(entry.queue); };
  for (const QueuedDemand& item : waiting) {
    v1::Queue& queue = count(item.entry);
    queue.set_jobs_waiting(queue.jobs_waiting() + 1);
    devices.insert(item.demand.device);
  }
  for (const ActiveJob& job : running) {
    v1::Queue& queue = count(job.entry);
    queue.set_jobs_running(queue.jobs_running() + 1);
    devices.insert(job.device);
  }
  std::vector<v1::Queue> result;
  for (auto& [name, queue] : queues) {
    for (const v1::DeviceType device : devices) {
      *queue.add_usage() = UsageOf(ledger, name, device);
    }
    result.push_back(std::move(queue));
  }
  return result;
}

Coordinator::QueueList Coordinator::ListQueues() const {
  const std::lock_guard lock(mutex_);
  return {.queues = QueuesLocked(),
          .configured = !queue_policies_.empty(),
          .config_error = queues_error_};
}

absl::StatusOr<v1::Queue> FindQueue(std::vector<v1::Queue> queues, const std::string& name) {
  std::vector<std::string> names;
  for (v1::Queue& queue : queues) {
    if (queue.spec().name() == name) return std::move(queue);
    names.push_back(queue.spec().name());
  }
  return WithInfo(absl::NotFoundError(
                      absl::StrCat("there is no queue '", name, "'", DidYouMean(name, names),
                                   names.empty() ? "" : "; queues: ", absl::StrJoin(names, ", "))),
                  "QUEUE_NOT_FOUND", {{"queue", name}});
}

// -----------------------------------------------------------------------------------------------
// Maintenance

bool Coordinator::InMaintenance() const {
  return maintenance_.mode() == v1::MAINTENANCE_MODE_HOLD ||
         maintenance_.mode() == v1::MAINTENANCE_MODE_CLOSED;
}

std::string Coordinator::MaintenanceText() const {
  return absl::StrCat(
      "maintenance (", ModeText(maintenance_.mode()), ") since ",
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", FromTimestamp(maintenance_.start_time()),
                       absl::UTCTimeZone()),
      " by ", maintenance_.owner(),
      maintenance_.reason().empty() ? "" : absl::StrCat(": ", maintenance_.reason()),
      "; nothing is placed until it ends (fsdpctl maintenance off)");
}

void Coordinator::SetMaintenance(const CallerIdentity& caller, v1::MaintenanceMode mode,
                                 const std::string& reason, MaintenanceDone done) {
  constexpr std::size_t kMaxReason = 500;
  if (mode == v1::MAINTENANCE_MODE_UNSPECIFIED || !v1::MaintenanceMode_IsValid(mode)) {
    return done(BadField("mode", absl::StrCat(static_cast<int>(mode)),
                         "is not set: want OFF, HOLD or CLOSED"));
  }
  if (reason.size() > kMaxReason) {
    return done(BadField("reason", reason.substr(0, 60),
                         absl::StrCat("has ", reason.size(), " bytes: want at most ", kMaxReason)));
  }
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  const bool was_on = InMaintenance();
  LOG_INFO("maintenance: %s by %s", v1::MaintenanceMode_Name(mode), caller.subject);
  maintenance_.set_mode(mode);
  if (mode == v1::MAINTENANCE_MODE_OFF) {
    maintenance_.clear_reason();
    maintenance_.clear_owner();
    maintenance_.clear_start_time();
  } else {
    maintenance_.set_reason(reason);
    maintenance_.set_owner(caller.subject);
    if (!was_on) *maintenance_.mutable_start_time() = ToTimestamp(clock_.WallNow());
  }
  StoreBatch batch;
  *batch.cluster.emplace().mutable_maintenance() = maintenance_;
  Persist(std::move(batch), [done = std::move(done), reply = maintenance_](absl::Status status) {
    if (!status.ok()) return done(status);
    done(reply);
  });
  WantSchedule();
}

}  // namespace fsdp::coordinator

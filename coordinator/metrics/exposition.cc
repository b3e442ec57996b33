#include "coordinator/metrics/exposition.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/version.h"
#include "prometheus/exposer.h"
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
  AddByState("fsdp_attempts", stats.attempts, "ATTEMPT_STATE_", &families);
  for (const auto& [key, count] : stats.queue) {
    families.Add("fsdp_queue_depth", {key.first, key.second}, static_cast<double>(count));
  }
  AddByState("fsdp_workers", stats.workers, "WORKER_STATE_", &families);
  for (const auto& [worker, age] : stats.heartbeat_age_seconds) {
    families.Add("fsdp_worker_heartbeat_age_seconds", {worker}, age);
  }
  counters_.AddTo(&families);
  families.Add("fsdp_build_info", {kVersion}, 1);
  families.Add("fsdp_start_timestamp_seconds", {}, stats.start_timestamp_seconds);
  return families.Take();
}

MetricsEndpoint::MetricsEndpoint() = default;
MetricsEndpoint::~MetricsEndpoint() = default;

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& address, std::shared_ptr<prometheus::Collectable> collectable) {
  auto endpoint = std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint());
  endpoint->collectable_ = std::move(collectable);
  // prometheus-cpp throws when it cannot bind.
  try {
    endpoint->exposer_ = std::make_unique<prometheus::Exposer>(address, 1);
    endpoint->exposer_->RegisterCollectable(endpoint->collectable_);
    endpoint->port_ = endpoint->exposer_->GetListeningPorts().front();
  } catch (const std::exception&) {
    // What the library says names neither the address nor the cause.
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": the port is taken or the address is not this machine's; give "
                     "--metrics-listen a free address, or port 0"));
  }
  return endpoint;
}

}  // namespace fsdp::coordinator

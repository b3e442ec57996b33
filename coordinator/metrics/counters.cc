#include "coordinator/metrics/counters.h"

#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "fsdp/v1/job_service.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/metric_table.h"

namespace fsdp::coordinator {

void Counters::Add(std::string_view name, std::string_view label, std::string_view label2,
                   double amount) {
  const std::lock_guard lock(mutex_);
  counters_[{std::string(name), {std::string(label), std::string(label2)}}] += amount;
}

MetricHistogram& Counters::HistogramLocked(std::string_view name, std::string_view label) {
  auto& slot = histograms_[{std::string(name), {std::string(label), ""}}];
  if (slot == nullptr) slot = std::make_unique<MetricHistogram>(name);
  return *slot;
}

void Counters::Observe(std::string_view name, absl::Duration value, std::string_view label) {
  MetricHistogram* histogram = nullptr;
  {
    const std::lock_guard lock(mutex_);
    histogram = &HistogramLocked(name, label);
  }
  histogram->Observe(absl::ToDoubleSeconds(value));
}

void Counters::Declare(std::string_view name, std::string_view label, std::string_view label2) {
  if (GetMetric(name).type != MetricType::kHistogram) return Add(name, label, label2, 0);
  const std::lock_guard lock(mutex_);
  HistogramLocked(name, label);
}

double Counters::Value(std::string_view name, std::string_view label,
                       std::string_view label2) const {
  const std::lock_guard lock(mutex_);
  const auto entry = counters_.find({std::string(name), {std::string(label), std::string(label2)}});
  return entry == counters_.end() ? 0 : entry->second;
}

void Counters::AddTo(MetricFamilies* families) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, value] : counters_) {
    const auto& [name, labels] = key;
    if (labels[0].empty()) {
      families->Add(name, {}, value);
    } else if (labels[1].empty()) {
      families->Add(name, {labels[0]}, value);
    } else {
      families->Add(name, {labels[0], labels[1]}, value);
    }
  }
  for (const auto& [key, histogram] : histograms_) {
    if (key.second[0].empty()) {
      histogram->AddTo(families, {});
    } else {
      histogram->AddTo(families, {key.second[0]});
    }
  }
}

namespace {

// One series per value of the enum but the unspecified one.
void DeclareEnum(Counters& counters, std::string_view name,
                 const google::protobuf::EnumDescriptor& values, std::string_view prefix) {
  for (int i = 1; i < values.value_count(); ++i) {
    counters.Declare(name, MetricLabelValue(values.value(i)->name(), prefix));
  }
}

void DeclareMethods(Counters& counters, const google::protobuf::FileDescriptor& file) {
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      counters.Declare("fsdp_rpc_total", service.name() + "." + service.method(m)->name(), "OK");
    }
  }
}

}  // namespace

void DeclareCounters(Counters& counters) {
  for (const MetricDescriptor& metric : MetricTable()) {
    const bool ours = metric.owner == MetricOwner::kCoordinator;
    if (ours && metric.type != MetricType::kGauge && metric.labels.empty()) {
      counters.Declare(metric.name);
    }
  }
  DeclareEnum(counters, "fsdp_job_restarts_total", *v1::FailureCause_descriptor(),
              "FAILURE_CAUSE_");
  for (const v1::JobState state :
       {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    counters.Declare("fsdp_jobs_finished_total",
                     MetricLabelValue(v1::JobState_Name(state), "JOB_STATE_"));
  }
  for (const char* kind : {"grown", "shrunk"}) {
    counters.Declare("fsdp_job_rank_changes_total", kind);
  }
  for (const char* kind : {"report", "manifest", "hello", "rendezvous"}) {
    counters.Declare("fsdp_stale_messages_total", kind);
  }
  for (const char* reason : {"stream_closed", "silent"}) {
    counters.Declare("fsdp_worker_losses_total", reason);
  }
  const google::protobuf::OneofDescriptor& reports = *v1::Report::descriptor()->oneof_decl(0);
  for (int i = 0; i < reports.field_count(); ++i) {
    counters.Declare("fsdp_reports_total", reports.field(i)->name());
  }
  for (const char* code : {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}) {
    counters.Declare("fsdp_admission_refused_total", code);
  }
  // The usual ones; the others come with the first of them.
  for (const char* reason : {"token_missing", "token_unknown", "credential_expired",
                             "role_insufficient", "queue_forbidden", "not_owner", "rate_limited"}) {
    counters.Declare("fsdp_rpc_denied_total", reason);
  }
  for (const auto* file :
       {v1::CreateJobRequest::descriptor()->file(), v1::ListWorkersRequest::descriptor()->file(),
        v1::ConnectRequest::descriptor()->file(), v1::EnrollWorkerRequest::descriptor()->file()}) {
    DeclareMethods(counters, *file);
  }
}

}  // namespace fsdp::coordinator

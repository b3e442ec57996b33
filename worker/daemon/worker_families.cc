#include "worker/daemon/worker_families.h"

#include <exception>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "prometheus/collectable.h"
#include "proto/support/metric_family.h"
#include "proto/support/metric_table.h"
#include "proto/support/metrics_exposer.h"
#include "proto/support/status.h"
#include "proto/support/tls/tls_metrics.h"
#include "worker/daemon/build_version.h"
#include "worker/daemon/rank_metrics.h"

namespace fsdp::daemon {
namespace {

std::string BoundLabel(v1::Bound bound) {
  return MetricLabelValue(v1::Bound_Name(bound), "BOUND_");
}

std::string SourceLabel(v1::MetricSource source) {
  return MetricLabelValue(v1::MetricSource_Name(source), "METRIC_SOURCE_");
}

void AddStepSeries(const RankSeries& series, const std::string& job, const std::string& rank,
                   MetricFamilies* to) {
  const v1::StepReport& last = series.last();
  const v1::StepMetrics& metrics = last.metrics();
  to->Add("fsdp_loss", {job, rank}, metrics.loss());
  to->Add("fsdp_grad_norm", {job, rank}, metrics.grad_norm());
  to->Add("fsdp_learning_rate", {job, rank}, metrics.lr());
  to->Add("fsdp_step", {job, rank}, static_cast<double>(metrics.step()));
  to->Add("fsdp_step_seconds", {job, rank}, metrics.step_seconds());
  if (metrics.mfu() > 0) to->Add("fsdp_mfu_ratio", {job, rank}, metrics.mfu());
  if (metrics.hfu() > 0) to->Add("fsdp_hfu_ratio", {job, rank}, metrics.hfu());
  if (series.has_validation_loss()) {
    to->Add("fsdp_validation_loss", {job, rank}, series.validation_loss());
  }
  for (const v1::EvaluationLoss& set : series.evaluations()) {
    to->Add("fsdp_evaluation_loss", {job, rank, set.name()}, set.loss());
  }
  to->Add("fsdp_last_step_timestamp_seconds", {job, rank}, series.last_step_unix_seconds());
  to->Add("fsdp_memory_peak_bytes", {job, rank}, static_cast<double>(last.memory_peak_bytes()));
  for (const v1::MemoryKind& memory : last.memory()) {
    to->Add("fsdp_memory_bytes", {job, rank, memory.kind()},
            static_cast<double>(memory.now_bytes()));
    to->Add("fsdp_memory_kind_peak_bytes", {job, rank, memory.kind()},
            static_cast<double>(memory.peak_bytes()));
  }
  if (last.memory().empty()) {
    to->Add("fsdp_memory_bytes", {job, rank, "all"}, static_cast<double>(last.memory_now_bytes()));
  }
  for (const v1::FamilyVerdict& family : last.families()) {
    to->Add("fsdp_kernel_compute_ratio", {job, rank, family.family()}, family.compute_ratio());
    to->Add("fsdp_kernel_memory_ratio", {job, rank, family.family()}, family.memory_ratio());
    if (family.source() == v1::METRIC_SOURCE_PM_SAMPLING) {
      to->Add("fsdp_kernel_tensor_ratio", {job, rank, family.family()}, family.tensor_ratio());
    }
  }
}

void AddTotals(const RankSeries& series, const std::string& job, const std::string& rank,
               MetricFamilies* to) {
  to->Add("fsdp_steps_total", {job, rank}, static_cast<double>(series.num_steps()));
  to->Add("fsdp_steps_skipped_total", {job, rank}, static_cast<double>(series.num_steps_skipped()));
  to->Add("fsdp_rollbacks_total", {job, rank}, static_cast<double>(series.num_rollbacks()));
  to->Add("fsdp_tokens_total", {job, rank}, series.num_tokens());
  to->Add("fsdp_flops_total", {job, rank}, series.flops());
  for (const PhaseField& field : PhaseFields()) {
    to->Add("fsdp_step_phase_seconds_total", {job, rank, field.label},
            (series.phases().*field.get)());
  }
  for (const KernelSeconds& kernel : series.kernel_seconds()) {
    to->Add("fsdp_kernel_seconds_total",
            {job, rank, kernel.family(), BoundLabel(kernel.bound()), SourceLabel(kernel.source())},
            kernel.seconds());
  }
  for (const FamilyTotals& family : series.families()) {
    to->Add("fsdp_kernel_launches_total", {job, rank, family.family()}, family.launches());
    to->Add("fsdp_kernel_flops_total", {job, rank, family.family()}, family.flops());
    to->Add("fsdp_kernel_bytes_total", {job, rank, family.family()}, family.bytes());
    to->Add("fsdp_kernel_savable_seconds", {job, rank, family.family()}, family.savable_seconds());
  }
  for (const v1::CollectiveTotals& totals : series.collectives()) {
    const std::string& name = totals.operation();
    to->Add("fsdp_collectives_total", {job, rank, name}, static_cast<double>(totals.count()));
    to->Add("fsdp_collective_bytes_total", {job, rank, name}, static_cast<double>(totals.bytes()));
    to->Add("fsdp_collective_seconds_total", {job, rank, name}, totals.seconds());
  }
}

void AddProfiler(const v1::ProfilerHealth& profiler, const std::string& job,
                 const std::string& rank, MetricFamilies* to) {
  to->Add("fsdp_profiler_state", {job, rank, profiler.state()}, 1);
  to->Add("fsdp_profiler_windows_total", {job, rank}, static_cast<double>(profiler.windows()));
  to->Add("fsdp_profiler_samples_total", {job, rank}, static_cast<double>(profiler.samples()));
  for (const auto& [reason, count] : profiler.dropped()) {
    to->Add("fsdp_profiler_dropped_total", {job, rank, reason}, static_cast<double>(count));
  }
  for (const auto& [kind, seconds] : profiler.overhead_seconds()) {
    to->Add("fsdp_profiler_overhead_seconds_total", {job, rank, kind}, seconds);
  }
}

void AddCeilings(const v1::DeviceCeilings& ceilings, const std::string& job,
                 const std::string& rank, MetricFamilies* to) {
  const auto add = [&](const char* name, const char* kind, double value) {
    if (value > 0) to->Add(name, {job, rank, kind}, value);
  };
  add("fsdp_ceiling_flops_per_second", "fp32", ceilings.fp32_flops_per_second());
  add("fsdp_ceiling_flops_per_second", "bf16", ceilings.bf16_flops_per_second());
  add("fsdp_ceiling_flops_per_second", "fp8", ceilings.fp8_flops_per_second());
  add("fsdp_ceiling_flops_per_second", "fp32_sustained",
      ceilings.sustained_fp32_flops_per_second());
  add("fsdp_ceiling_flops_per_second", "bf16_sustained",
      ceilings.sustained_bf16_flops_per_second());
  add("fsdp_ceiling_flops_per_second", "fp8_sustained", ceilings.sustained_fp8_flops_per_second());
  add("fsdp_ceiling_bytes_per_second", "memory", ceilings.copy_bytes_per_second());
  add("fsdp_ceiling_bytes_per_second", "collective", ceilings.collective_bytes_per_second());
}

void AddRank(const RankSeries& series, MetricFamilies* to) {
  const std::string job = MetricJobId(series.key().job());
  const std::string rank = absl::StrCat(series.key().rank());
  to->Add("fsdp_rank_state",
          {job, rank, MetricLabelValue(v1::RankState_Name(series.state()), "RANK_STATE_")}, 1);
  if (series.has_ceilings()) AddCeilings(series.ceilings(), job, rank, to);
  AddTotals(series, job, rank, to);
  if (series.has_profiler()) AddProfiler(series.profiler(), job, rank, to);
  if (series.has_last()) AddStepSeries(series, job, rank, to);
}

void AddHealth(const DeviceHealth& health, const std::string& worker, const std::string& device,
               MetricFamilies* to) {
  if (health.has_power_watts()) {
    to->Add("fsdp_device_power_watts", {worker, device}, health.power_watts());
  }
  if (health.has_temperature_celsius()) {
    to->Add("fsdp_device_temperature_celsius", {worker, device}, health.temperature_celsius());
  }
  if (health.has_sm_clock_hertz()) {
    to->Add("fsdp_device_sm_clock_hertz", {worker, device}, health.sm_clock_hertz());
  }
  for (const auto& [reason, seconds] : health.throttled_seconds()) {
    to->Add("fsdp_device_throttled_seconds_total", {worker, device, reason}, seconds);
  }
  for (const auto& [kind, count] : health.ecc_errors()) {
    to->Add("fsdp_device_ecc_errors_total", {worker, device, kind}, static_cast<double>(count));
  }
  for (const auto& [kind, bytes] : health.link_bytes()) {
    to->Add("fsdp_device_link_bytes_total", {worker, device, kind}, bytes);
  }
}

void AddDevice(const DeviceSnapshot& device, MetricFamilies* to) {
  const std::string& worker = device.worker();
  const auto add = [&](const char* name, auto value) {
    to->Add(name, {worker}, static_cast<double>(value));
  };
  add("fsdp_worker_connected", device.connected());
  add("fsdp_worker_connects_total", device.num_connects());
  add("fsdp_worker_stale_commands_total", device.num_stale_commands());
  add("fsdp_worker_rank_active", device.rank_active());
  add("fsdp_worker_child_restarts_total", device.num_child_restarts());
  add("fsdp_spool_bytes", device.spool_bytes());
  add("fsdp_spool_reports", device.spool_reports());
  add("fsdp_spool_corrupt_total", device.spool_corrupt());
  add("fsdp_spool_write_errors_total", device.spool_write_errors());
  to->Add("fsdp_spool_dropped_total", {worker, "step"},
          static_cast<double>(device.spool_dropped_steps()));
  to->Add("fsdp_spool_dropped_total", {worker, "logs"},
          static_cast<double>(device.spool_dropped_logs()));
  for (const auto& [reason, count] : device.trainer_exits()) {
    to->Add("fsdp_trainer_exits_total", {worker, reason}, static_cast<double>(count));
  }
  to->Add("fsdp_device_memory_bytes", {worker, device.device()},
          static_cast<double>(device.device_memory_bytes()));
  if (device.has_device_memory_used_bytes()) {
    to->Add("fsdp_device_memory_used_bytes", {worker, device.device()},
            static_cast<double>(device.device_memory_used_bytes()));
  }
  AddHealth(device.health(), worker, device.device(), to);
}

}  // namespace

std::vector<prometheus::MetricFamily> WorkerFamilies(const std::vector<DeviceSnapshot>& devices,
                                                     double start_unix_seconds) {
  MetricFamilies families;
  families.Add("fsdp_build_info", {kVersion}, 1);
  families.Add("fsdp_start_timestamp_seconds", {}, start_unix_seconds);
  std::map<std::pair<std::string, int>, const RankSeries*> ranks;
  for (const DeviceSnapshot& device : devices) {
    AddDevice(device, &families);
    // A rank that moved to another device of this host is shown by its newest epoch only: the same
    // series twice would make the whole scrape invalid.
    for (const RankSeries& series : device.ranks()) {
      const RankSeries*& shown = ranks[{MetricJobId(series.key().job()), series.key().rank()}];
      if (shown == nullptr || shown->key().epoch() < series.key().epoch()) shown = &series;
    }
  }
  for (const auto& [id, series] : ranks) AddRank(*series, &families);
  return families.Take();
}

struct MetricsServer::Impl final : prometheus::Collectable {
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = WorkerFamilies(source(), start_unix_seconds);
    MetricFamilies certificates;
    for (const auto& one : tls.shown) AddTlsMetrics(*one, &certificates);
    for (auto& family : certificates.Take()) families.push_back(std::move(family));
    return families;
  }

  Source source;
  Tls tls;
  double start_unix_seconds = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  int port = 0;
  std::string address;
  std::unique_ptr<MetricsExposer> exposer;
};

MetricsServer::MetricsServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() { impl_->exposer.reset(); }
int MetricsServer::port() const { return impl_->port; }
const std::string& MetricsServer::address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    Source source, Tls tls) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address '", address, "' is not HOST:PORT"));
  }
  auto impl = std::make_shared<Impl>();
  impl->source = std::move(source);
  impl->tls = std::move(tls);
  ASSIGN_OR_RETURN(impl->exposer,
                   MetricsExposer::Start(address, /*num_threads=*/2, impl->tls.endpoint));
  impl->port = impl->exposer->port();
  impl->address = absl::StrCat(address.substr(0, colon), ":", impl->port);
  impl->exposer->Register(impl);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

}  // namespace fsdp::daemon

#include "worker/daemon/worker_tls.h"

#include <utility>

#include "proto/support/status.h"

namespace fsdp::daemon {

TlsFileNames MetricsTlsNames() {
  return {.certificate = "--metrics-tls-certificate",
          .key = "--metrics-tls-key",
          .ca = "--metrics-tls-client-ca"};
}

absl::StatusOr<std::unique_ptr<WorkerTls>> WorkerTls::Create(const Options& options, Clock& clock) {
  RETURN_IF_ERROR(CheckClientFiles(options.coordinator, TlsFileNames()));
  RETURN_IF_ERROR(CheckServerFiles(options.metrics, MetricsTlsNames()));
  auto tls = std::unique_ptr<WorkerTls>(new WorkerTls());
  std::vector<std::shared_ptr<TlsReloader>> reloaders;
  if (!options.coordinator.empty()) {
    ASSIGN_OR_RETURN(tls->worker_,
                     TlsReloader::Create("worker", options.coordinator, TlsFileNames(), clock));
    reloaders.push_back(tls->worker_);
  }
  if (!options.metrics.empty()) {
    ASSIGN_OR_RETURN(tls->metrics_,
                     TlsReloader::Create("metrics", options.metrics, MetricsTlsNames(), clock));
    reloaders.push_back(tls->metrics_);
  }
  if (!reloaders.empty()) {
    tls->thread_ = std::make_unique<TlsReloadThread>(std::move(reloaders), options.reload_period);
  }
  if (!options.identity.empty()) {
    tls->renewer_ = std::make_unique<Renewer>(options.coordinator_address, options.server_name,
                                              options.identity, clock);
  }
  return tls;
}

std::vector<std::shared_ptr<const TlsReloader>> WorkerTls::shown() const {
  std::vector<std::shared_ptr<const TlsReloader>> all;
  for (const auto& one : {worker_, metrics_}) {
    if (one != nullptr) all.push_back(one);
  }
  return all;
}

}  // namespace fsdp::daemon

#ifndef FSDPCTL_WORKER_DAEMON_WORKER_FAMILIES_H_
#define FSDPCTL_WORKER_DAEMON_WORKER_FAMILIES_H_

// From device snapshots to Prometheus families, and the endpoint that serves them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/metric_family.h"
#include "proto/support/tls/tls_reloader.h"
#include "worker/daemon/daemon_link.pb.h"

namespace fsdp::daemon {

// The families of one scrape over all devices of a host.
std::vector<prometheus::MetricFamily> WorkerFamilies(const std::vector<DeviceSnapshot>& devices,
                                                     double start_unix_seconds);

// Thread-safe.
class MetricsServer {
 public:
  // Called by the server's threads for each scrape.
  using Source = std::function<std::vector<DeviceSnapshot>()>;

  // How the endpoint is protected, and the certificates that it tells about.
  struct Tls {
    // Null: in the clear.
    std::shared_ptr<const TlsReloader> endpoint;
    std::vector<std::shared_ptr<const TlsReloader>> shown;
  };

  // Serves http://ADDRESS/metrics, or https; port 0 takes a free one.
  //   INVALID_ARGUMENT  `address` is not HOST:PORT
  //   UNAVAILABLE       it cannot be bound: in use, not ours, or no permission
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              Source source, Tls tls = {});
  ~MetricsServer();

  [[nodiscard]] int port() const;
  // HOST:PORT with the real port.
  [[nodiscard]] const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_WORKER_FAMILIES_H_

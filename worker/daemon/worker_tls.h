#ifndef FSDPCTL_WORKER_DAEMON_WORKER_TLS_H_
#define FSDPCTL_WORKER_DAEMON_WORKER_TLS_H_

// The certificates of a worker's host: the one that it shows to the coordinator, and the one of its
// Prometheus endpoint. One per host: with several devices the supervising process has it.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/tls/tls_files.h"
#include "proto/support/tls/tls_reloader.h"
#include "worker/daemon/identity_folder.h"

namespace fsdp::daemon {

// How flags call the endpoint's files.
TlsFileNames MetricsTlsNames();

// Thread-safe.
class WorkerTls {
 public:
  struct Options {
    // To the coordinator, and of the endpoint; empty: in the clear.
    TlsFiles coordinator;
    TlsFiles metrics;
    // HOST:PORT, and the name in its certificate where that is another.
    std::string coordinator_address;
    std::string server_name;
    // The folder that `coordinator` is in, if `fsdp-worker enroll` made it: its certificate is
    // renewed.
    std::string identity;
    absl::Duration reload_period = kTlsReloadPeriod;
  };

  // Reads all files. `clock` outlives it.
  //   INVALID_ARGUMENT  a file is named without another that it needs
  //   others            as LoadTlsMaterial
  static absl::StatusOr<std::unique_ptr<WorkerTls>> Create(const Options& options, Clock& clock);

  // Null: the endpoint is in the clear.
  [[nodiscard]] std::shared_ptr<const TlsReloader> endpoint() const { return metrics_; }
  // What metrics tell about.
  [[nodiscard]] std::vector<std::shared_ptr<const TlsReloader>> shown() const;

 private:
  WorkerTls() = default;

  std::shared_ptr<TlsReloader> worker_;
  std::shared_ptr<TlsReloader> metrics_;
  std::unique_ptr<TlsReloadThread> thread_;
  std::unique_ptr<Renewer> renewer_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_WORKER_TLS_H_

#ifndef FSDPCTL_PROTO_SUPPORT_METRICS_EXPOSER_H_
#define FSDPCTL_PROTO_SUPPORT_METRICS_EXPOSER_H_

// A Prometheus endpoint, /metrics, in the clear or behind TLS. Thread-safe.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp {

class MetricsExposer {
 public:
  // `tls` null: in the clear. With authorities in it scrapers need a certificate of theirs.
  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(
      const std::string& address, int num_threads, std::shared_ptr<const TlsReloader> tls);
  // The library takes up to 2 s to end its threads.
  virtual ~MetricsExposer() = default;

  // Shown until it is destroyed; only a weak pointer is kept.
  virtual void Register(const std::weak_ptr<prometheus::Collectable>& collectable) = 0;
  [[nodiscard]] virtual int port() const = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_METRICS_EXPOSER_H_

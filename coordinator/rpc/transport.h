#ifndef FSDPCTL_COORDINATOR_RPC_TRANSPORT_H_
#define FSDPCTL_COORDINATOR_RPC_TRANSPORT_H_

// How connections are protected: the certificates of the gRPC port, of the Prometheus endpoint and
// of the status page, re-read while they are replaced, and what metrics say of them.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/config/options.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/support/clock.h"
#include "proto/support/metric_family.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp::coordinator {

// Thread-safe. Outlives the server that its credentials are given to.
class Transport {
 public:
  // Without TLS in `options` it protects nothing. `clock` outlives it.
  //   errors as LoadTlsMaterial: a certificate that is named cannot be used
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const Options& options, Clock& clock);

  [[nodiscard]] std::shared_ptr<grpc::ServerCredentials> credentials() const {
    return credentials_;
  }
  // Are clients' certificates checked by some authority?
  [[nodiscard]] bool checks_clients() const {
    return server_ != nullptr && !server_->current()->ca_pem.empty();
  }
  // Is this authority one of those?
  [[nodiscard]] bool Trusts(const tls::Certificate& authority) const;
  // Null: the endpoint is in the clear.
  [[nodiscard]] std::shared_ptr<TlsReloader> metrics_tls() const { return metrics_; }

  // Of the status page: the gRPC port's certificate. A browser is asked for one of its own only
  // where the gRPC port insists on it. Null: the page is in the clear.
  [[nodiscard]] std::shared_ptr<TlsReloader> web_tls() const { return web_; }

  // Ends of certificates, and whether files wait that cannot be used.
  void AddTo(MetricFamilies* families) const;

 private:
  Transport() = default;

  std::shared_ptr<TlsReloader> server_;
  std::shared_ptr<TlsReloader> metrics_;
  std::shared_ptr<TlsReloader> web_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<TlsReloadThread> thread_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_TRANSPORT_H_

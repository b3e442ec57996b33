#include "coordinator/rpc/transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/grpc_credentials.h"
#include "proto/support/tls/tls_metrics.h"

namespace fsdp::coordinator {

absl::StatusOr<std::unique_ptr<Transport>> Transport::Create(const Options& options, Clock& clock) {
  auto transport = std::unique_ptr<Transport>(new Transport());
  std::vector<std::shared_ptr<TlsReloader>> reloaders;
  if (!options.tls.empty()) {
    TlsFiles files = options.tls;
    if (files.ca.empty() && !options.enroll_ca.empty()) {
      files.ca = absl::StrCat(options.enroll_ca, "/", tls::kAuthorityCertificate);
    }
    ASSIGN_OR_RETURN(transport->server_,
                     TlsReloader::Create("server", files, ServerTlsNames(), clock));
    reloaders.push_back(transport->server_);
    transport->credentials_ =
        ReloadingServerCredentials(transport->server_, options.require_client_certificate
                                                           ? ClientCertificates::kRequire
                                                           : ClientCertificates::kVerifyIfGiven);
  } else {
    transport->credentials_ = grpc::InsecureServerCredentials();
  }
  if (!options.metrics_tls.empty() && !options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(transport->metrics_,
                     TlsReloader::Create("metrics", options.metrics_tls, MetricsTlsNames(), clock));
    reloaders.push_back(transport->metrics_);
  }
  if (!options.tls.empty() && !options.web_listen.empty()) {
    TlsFiles files = options.tls;
    if (!options.require_client_certificate) files.ca.clear();
    ASSIGN_OR_RETURN(transport->web_,
                     TlsReloader::Create("web", std::move(files), ServerTlsNames(), clock));
    reloaders.push_back(transport->web_);
  }
  if (!reloaders.empty()) {
    transport->thread_ =
        std::make_unique<TlsReloadThread>(std::move(reloaders), options.tls_reload_period);
  }
  return transport;
}

bool Transport::Trusts(const tls::Certificate& authority) const {
  if (server_ == nullptr) return false;
  const std::shared_ptr<const TlsMaterial> material = server_->current();
  return std::any_of(
      material->authorities.begin(), material->authorities.end(),
      [&](const tls::Certificate& one) { return one.fingerprint == authority.fingerprint; });
}

// The page's files are the server's.
void Transport::AddTo(MetricFamilies* families) const {
  for (const auto& reloader : {server_, metrics_}) {
    if (reloader != nullptr) AddTlsMetrics(*reloader, families);
  }
}

}  // namespace fsdp::coordinator

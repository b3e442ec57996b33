#include "proto/support/metrics_exposer.h"

#include <CivetServer.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"
#include "proto/support/status.h"
#include "proto/support/tls/tls_front.h"

namespace fsdp {
namespace {

// Behind a front it is served over TLS, or over IPv6, which the library has not.
bool NeedsFront(const std::string& address, bool tls) { return tls || address.starts_with('['); }

// Of the server behind a front: only what comes through it is answered.
int RefuseOthers(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  if (IsFromFront(request->remote_port)) return 0;
  mg_send_http_error(connection, 403, "%s", "this endpoint is served at another port");
  return 403;
}

class MetricsExposerImpl : public MetricsExposer {
 public:
  absl::Status Start(const std::string& address, int num_threads,
                     std::shared_ptr<const TlsReloader> tls) {
    const bool fronted = NeedsFront(address, tls != nullptr);
    if (fronted) callbacks_.begin_request = RefuseOthers;
    // The library throws when it cannot bind; nothing of that leaves this function.
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(
          fronted ? "127.0.0.1:0" : address, static_cast<std::size_t>(num_threads), &callbacks_);
      port_ = exposer_->GetListeningPorts().at(0);
    } catch (const std::exception&) {
      return CannotServe(address);
    }
    if (!fronted) return absl::OkStatus();
    auto front = TlsFront::Start({.listen = address, .backend_port = port_}, std::move(tls));
    if (absl::IsUnavailable(front.status())) return CannotServe(address);
    if (!front.ok()) return front.status();
    front_ = *std::move(front);
    port_ = front_->port();
    return absl::OkStatus();
  }

  void Register(const std::weak_ptr<prometheus::Collectable>& collectable) override {
    exposer_->RegisterCollectable(collectable);
  }
  int port() const override { return port_; }

 private:
  // What the library says names neither the address nor the cause.
  static absl::Status CannotServe(const std::string& address) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": the port is taken or the address is not this machine's; give "
                     "--metrics-listen a free address, or port 0"));
  }

  CivetCallbacks callbacks_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  // Ends first.
  std::unique_ptr<TlsFront> front_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(
    const std::string& address, int num_threads, std::shared_ptr<const TlsReloader> tls) {
  auto exposer = std::make_unique<MetricsExposerImpl>();
  RETURN_IF_ERROR(exposer->Start(address, num_threads, std::move(tls)));
  return exposer;
}

}  // namespace fsdp

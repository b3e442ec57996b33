#include "coordinator/web/web_endpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/web/http_server.h"
#include "coordinator/web/page_access.h"
#include "coordinator/web/status_page.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"
#include "proto/support/tls/tls_front.h"

namespace fsdp::coordinator {
namespace {

StatusPageParts PartsOf(const WebEndpointOptions& options, const PageAccess& access) {
  Coordinator* const coordinator = options.coordinator;
  StatusPageParts parts;
  parts.clock = options.clock;
  parts.directory = &coordinator->directory();
  parts.store = &coordinator->store();
  parts.access = &access;
  parts.read_cluster = [coordinator] {
    return ClusterSnapshot{coordinator->Describe(), coordinator->ListWorkers()};
  };
  parts.is_encrypted = options.tls != nullptr;
  parts.is_loopback = IsLoopback(options.listen);
  return parts;
}

class WebEndpointImpl : public WebEndpoint {
 public:
  explicit WebEndpointImpl(const WebEndpointOptions& options)
      : page_(PartsOf(options, options.access == nullptr ? open_ : *options.access)) {}

  // With TLS, or over IPv6, the server is on loopback, and answers only its front.
  absl::Status Listen(const std::string& address, std::shared_ptr<const TlsReloader> tls) {
    const auto handle = [this](const HttpRequest& request) { return page_.Handle(request); };
    if (tls == nullptr && !address.starts_with('[')) {
      ASSIGN_OR_RETURN(server_, HttpServer::Start({.listen = address}, handle));
      port_ = server_->port();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(server_, HttpServer::Start({.listen = "127.0.0.1:0"}, handle, IsFromFront));
    auto front =
        TlsFront::Start({.listen = address, .backend_port = server_->port()}, std::move(tls));
    if (!front.ok()) {
      return Annotate(front.status(), absl::StrCat("cannot serve the status page at ", address,
                                                   "; give --web-listen a free address"));
    }
    front_ = *std::move(front);
    port_ = front_->port();
    return absl::OkStatus();
  }
  [[nodiscard]] int port() const override { return port_; }

 private:
  const OpenPageAccess open_;
  StatusPage page_;
  // Ends before the page, which its threads use, and after what passes connections on to it.
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<TlsFront> front_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebEndpoint>> WebEndpoint::Start(const WebEndpointOptions& options) {
  auto endpoint = std::make_unique<WebEndpointImpl>(options);
  RETURN_IF_ERROR(endpoint->Listen(options.listen, options.tls));
  return endpoint;
}

}  // namespace fsdp::coordinator

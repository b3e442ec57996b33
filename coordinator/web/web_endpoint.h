#ifndef FSDPCTL_COORDINATOR_WEB_WEB_ENDPOINT_H_
#define FSDPCTL_COORDINATOR_WEB_WEB_ENDPOINT_H_

// The status page at an address: the page, who may see it, and the server in front of it.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "coordinator/web/page_access.h"
#include "proto/support/clock.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp::coordinator {

struct WebEndpointOptions {
  // "host:port"; port 0: a free one.
  std::string listen;
  // All outlive the endpoint.
  const Clock* clock = nullptr;
  Coordinator* coordinator = nullptr;
  // Null: everybody sees everything.
  const PageAccess* access = nullptr;
  // Null: in the clear.
  std::shared_ptr<const TlsReloader> tls;
};

class WebEndpoint {
 public:
  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<WebEndpoint>> Start(const WebEndpointOptions& options);
  // Waits for requests that are being answered; up to 2 s.
  virtual ~WebEndpoint() = default;
  [[nodiscard]] virtual int port() const = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_WEB_ENDPOINT_H_

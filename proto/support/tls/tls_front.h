#ifndef FSDPCTL_PROTO_SUPPORT_TLS_TLS_FRONT_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_TLS_FRONT_H_

// TLS, IPv6 or both for an HTTP server of this process that has neither: takes connections, does
// the handshake with the certificate of the moment, and passes the bytes on to the server on
// loopback. The server asks IsFromFront and turns everybody else away, so that nobody on this
// machine goes around the handshake.
//
// (civetweb, which comes with prometheus-cpp, opens "libssl.so" at run time: a file of Debian's
// development package that no installation has, and a certificate that it reads once; Debian builds
// it without IPv6.)
//
// Thread-safe. The process ignores SIGPIPE.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp {

class TlsFront {
 public:
  struct Options {
    // "host:port"; port 0: a free one.
    std::string listen;
    // Of the server, on 127.0.0.1.
    int backend_port = 0;
    // Beyond these, connections are closed at once.
    int max_connections = 32;
    absl::Duration handshake_timeout = absl::Seconds(5);
    // A connection that says nothing for this long is closed.
    absl::Duration idle_timeout = absl::Seconds(60);
  };

  // Authorities of `reloader`'s material make a client certificate of theirs mandatory; null: in
  // the clear.
  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<TlsFront>> Start(
      Options options, std::shared_ptr<const TlsReloader> reloader);
  // Closes all connections.
  virtual ~TlsFront() = default;

  [[nodiscard]] virtual int port() const = 0;
};

// Does this loopback connection, told by its client's port, come from a front of this process?
bool IsFromFront(int client_port);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_TLS_FRONT_H_

#ifndef FSDPCTL_COORDINATOR_WEB_HTTP_SERVER_H_
#define FSDPCTL_COORDINATOR_WEB_HTTP_SERVER_H_

// HTTP/1.1 for the status page, by civetweb, on threads of its own: what comes in here takes
// nothing from gRPC's. Everything about a request is bounded: its head and body in size, its time,
// and how many are looked at or wait. A client that is slow takes one of a few threads for a few
// seconds.
//
// Thread-safe.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/web/http_message.h"

struct mg_context;

namespace fsdp::coordinator {

struct HttpServerOptions {
  // "host:port"; port 0: a free one.
  std::string listen;
  int num_threads = 6;
  // That wait for a thread.
  int connection_queue = 16;
  // Request line and headers. Beyond: 431.
  int max_head_bytes = 8192;
  // Beyond: 413.
  int max_body_bytes = 4096;
  // For the whole of a request's head, its body, and each piece of the answer.
  absl::Duration request_timeout = absl::Seconds(5);
};

class HttpServer {
 public:
  // Called on the server's threads, several at a time.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Is this connection, told by its client's port, one to answer at all? Empty: all are.
  using Admit = std::function<bool(int client_port)>;

  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                           Handler handler, Admit admit = nullptr);
  // Waits for requests that are being answered; up to 2 s.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const { return port_; }

 private:
  friend struct HttpServerCallbacks;
  HttpServer(HttpServerOptions options, Handler handler, Admit admit)
      : options_(std::move(options)), handler_(std::move(handler)), admit_(std::move(admit)) {}

  const HttpServerOptions options_;
  const Handler handler_;
  const Admit admit_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_HTTP_SERVER_H_

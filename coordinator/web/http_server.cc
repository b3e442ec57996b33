#include "coordinator/web/http_server.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "civetweb.h"
#include "proto/support/log.h"

namespace fsdp::coordinator {
namespace {

void Send(mg_connection* connection, const HttpResponse& response, bool with_body) {
  const std::string text = Serialize(response, with_body);
  mg_write(connection, text.data(), text.size());
}

HttpResponse Plain(int status, std::string body) {
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .body = std::move(body) + "\n",
          .headers = {}};
}

// Absent: it is longer than `limit`, or did not come.
std::optional<std::string> ReadBody(mg_connection* connection, const mg_request_info& info,
                                    int limit) {
  std::string body;
  if (info.content_length > limit) return std::nullopt;
  std::array<char, 1024> piece{};
  // Without a length the body is chunked, or there is none.
  while (true) {
    const int size = mg_read(connection, piece.data(), piece.size());
    if (size < 0) return std::nullopt;
    if (size == 0) break;
    body.append(piece.data(), static_cast<std::size_t>(size));
    if (body.size() > static_cast<std::size_t>(limit)) return std::nullopt;
  }
  if (info.content_length >= 0 && body.size() != static_cast<std::size_t>(info.content_length)) {
    return std::nullopt;
  }
  return body;
}

std::string OrEmpty(const char* text) { return text == nullptr ? "" : text; }

HttpRequest RequestOf(const mg_request_info& info) {
  HttpRequest request;
  request.method = OrEmpty(info.request_method);
  request.path = OrEmpty(info.local_uri);
  request.query = OrEmpty(info.query_string);
  request.peer = info.remote_addr;
  for (int i = 0; i < info.num_headers; ++i) {
    request.headers.emplace(absl::AsciiStrToLower(OrEmpty(info.http_headers[i].name)),
                            OrEmpty(info.http_headers[i].value));
  }
  return request;
}

}  // namespace

// What civetweb calls.
struct HttpServerCallbacks {
  static HttpServer& ServerOf(const mg_connection* connection) {
    return *static_cast<HttpServer*>(mg_get_user_context_data(connection));
  }

  // 1: answered.
  static int OnRequest(mg_connection* connection) {
    const HttpServer& server = ServerOf(connection);
    const mg_request_info& info = *mg_get_request_info(connection);
    if (server.admit_ && !server.admit_(info.remote_port)) {
      Send(connection, Plain(403, "This port is not for you."), true);
      return 1;
    }
    HttpRequest request = RequestOf(info);
    const bool with_body = request.method != "HEAD";
    if (request.method == "POST") {
      std::optional<std::string> body = ReadBody(connection, info, server.options_.max_body_bytes);
      if (!body) {
        Send(connection,
             Plain(413, absl::StrCat("A form of at most ", server.options_.max_body_bytes,
                                     " bytes is taken here.")),
             true);
        return 1;
      }
      request.body = *std::move(body);
    }
    Send(connection, server.handler_(request), with_body);
    return 1;
  }

  // Requests that are none; 0: answered.
  static int OnError(mg_connection* connection, int status, const char* /*message*/) {
    Send(connection, Plain(status, StatusLine(status)), true);
    return 0;
  }

  // Its own lines go to its error log, which is off; ours say what matters. 1: handled.
  static int OnLog(const mg_connection* /*connection*/, const char* message) {
    LOG_DEBUG("status page: %s", message);
    return 1;
  }
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                              Handler handler, Admit admit) {
  // Counted by the library; never undone, for others of the process use it too.
  mg_init_library(MG_FEATURES_DEFAULT);
  std::unique_ptr<HttpServer> server(
      new HttpServer(std::move(options), std::move(handler), std::move(admit)));
  const HttpServerOptions& set = server->options_;
  mg_callbacks callbacks{};
  callbacks.begin_request = HttpServerCallbacks::OnRequest;
  callbacks.http_error = HttpServerCallbacks::OnError;
  callbacks.log_message = HttpServerCallbacks::OnLog;
  callbacks.log_access = HttpServerCallbacks::OnLog;
  // The library takes numbers only.
  const std::string listen = set.listen.starts_with("localhost:")
                                 ? absl::StrCat("127.0.0.1", set.listen.substr(9))
                                 : set.listen;
  const std::string threads = absl::StrCat(set.num_threads);
  const std::string queue = absl::StrCat(set.connection_queue);
  const std::string head = absl::StrCat(set.max_head_bytes);
  const std::string timeout = absl::StrCat(absl::ToInt64Milliseconds(set.request_timeout));
  const std::vector<const char*> settings = {"listening_ports",
                                             listen.c_str(),
                                             "num_threads",
                                             threads.c_str(),
                                             "connection_queue",
                                             queue.c_str(),
                                             "max_request_size",
                                             head.c_str(),
                                             "request_timeout_ms",
                                             timeout.c_str(),
                                             "enable_directory_listing",
                                             "no",
                                             "enable_keep_alive",
                                             "no",
                                             nullptr};
  server->context_ = mg_start(&callbacks, server.get(), const_cast<const char**>(settings.data()));
  mg_server_port port{};
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &port) != 1) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve the status page at ", set.listen,
                     ": the port is taken or the address is not one of this machine; "
                     "give --web-listen a free address, or port 0"));
  }
  server->port_ = port.port;
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

}  // namespace fsdp::coordinator

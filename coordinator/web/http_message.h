#ifndef FSDPCTL_COORDINATOR_WEB_HTTP_MESSAGE_H_
#define FSDPCTL_COORDINATOR_WEB_HTTP_MESSAGE_H_

// A request and its answer, as far as the status page needs them. Values.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::coordinator {

struct HttpRequest {
  std::string method;
  // Decoded: "/jobs/x-1".
  std::string path;
  // As sent, without its "?".
  std::string query;
  // By lower-case name.
  std::map<std::string, std::string> headers;
  std::string body;
  // "127.0.0.1".
  std::string peer;

  // Empty: not sent.
  [[nodiscard]] std::string_view Header(const std::string& name) const {
    const auto header = headers.find(name);
    return header == headers.end() ? std::string_view() : std::string_view(header->second);
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/html; charset=utf-8";
  std::string body;
  // Beyond those that every answer has.
  std::vector<std::pair<std::string, std::string>> headers;
};

// "200 OK".
std::string StatusLine(int status);

// What every answer carries besides its own headers: nothing is stored, framed, sniffed, or loaded
// from anywhere else.
const std::vector<std::pair<std::string, std::string>>& CommonHeaders();

// Head and, unless the request was HEAD, body, as they go over the wire.
std::string Serialize(const HttpResponse& response, bool with_body);

// A form's or a query's fields, decoded; a name that comes twice counts once, the first time.
std::map<std::string, std::string> FormFields(std::string_view encoded);

// The cookie's value; empty: it was not sent.
std::string CookieValue(std::string_view cookie_header, std::string_view name);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_HTTP_MESSAGE_H_

#include "coordinator/web/http_message.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// -1: no hexadecimal digit.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string FormDecoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (escape) {
      result += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

}  // namespace

std::string StatusLine(int status) {
  switch (status) {
    case 200:
      return "200 OK";
    case 303:
      return "303 See Other";
    case 400:
      return "400 Bad Request";
    case 401:
      return "401 Unauthorized";
    case 403:
      return "403 Forbidden";
    case 404:
      return "404 Not Found";
    case 405:
      return "405 Method Not Allowed";
    case 408:
      return "408 Request Timeout";
    case 413:
      return "413 Content Too Large";
    case 414:
      return "414 URI Too Long";
    case 421:
      return "421 Misdirected Request";
    case 429:
      return "429 Too Many Requests";
    case 431:
      return "431 Request Header Fields Too Large";
    case 501:
      return "501 Not Implemented";
    case 503:
      return "503 Service Unavailable";
    case 505:
      return "505 HTTP Version Not Supported";
    default:
      return absl::StrCat(status, status < 500 ? " Error" : " Server Error");
  }
}

const std::vector<std::pair<std::string, std::string>>& CommonHeaders() {
  static const auto& headers = *new std::vector<std::pair<std::string, std::string>>{
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
       "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
       "require-trusted-types-for 'script'"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"}};
  return headers;
}

std::string Serialize(const HttpResponse& response, bool with_body) {
  std::string text =
      absl::StrCat("HTTP/1.1 ", StatusLine(response.status), "\r\nConnection: close\r\n",
                   "Content-Type: ", response.content_type,
                   "\r\nContent-Length: ", response.body.size(), "\r\n");
  for (const auto* headers : {&CommonHeaders(), &response.headers}) {
    for (const auto& [name, value] : *headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&text, "\r\n", with_body ? response.body : "");
  return text;
}

std::map<std::string, std::string> FormFields(std::string_view encoded) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view pair : absl::StrSplit(ToAbsl(encoded), '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    fields.emplace(FormDecoded(field.first), FormDecoded(field.second));
  }
  return fields;
}

std::string CookieValue(std::string_view cookie_header, std::string_view name) {
  for (const absl::string_view pair : absl::StrSplit(ToAbsl(cookie_header), ';')) {
    const std::pair<std::string, std::string> cookie =
        absl::StrSplit(absl::StripAsciiWhitespace(pair), absl::MaxSplits('=', 1));
    if (cookie.first == name) return cookie.second;
  }
  return "";
}

}  // namespace fsdp::coordinator

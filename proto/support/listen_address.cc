#include "proto/support/listen_address.h"

#include <arpa/inet.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp {

namespace {

bool IsIpv6(std::string_view host) {
  in6_addr parsed{};
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &parsed) == 1;
}

bool IsHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) return IsIpv6(host.substr(1, host.size() - 2));
  return !host.empty() && host.find_first_of(":[]") == std::string_view::npos;
}

}  // namespace

bool IsHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  return colon != std::string_view::npos && IsHost(address.substr(0, colon)) &&
         absl::SimpleAtoi(ToAbsl(address.substr(colon + 1)), &port) && port >= 0 && port <= 65535;
}

std::string JoinHostPort(std::string_view host, int port) {
  const bool bare_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return bare_ipv6 ? absl::StrCat("[", ToAbsl(host), "]:", port)
                   : absl::StrCat(ToAbsl(host), ":", port);
}

std::string HostPortRemedy(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon != std::string_view::npos && IsIpv6(address.substr(0, colon))) {
    return absl::StrCat("an IPv6 address needs brackets: [", ToAbsl(address.substr(0, colon)),
                        "]:", ToAbsl(address.substr(colon + 1)));
  }
  return "want HOST:PORT with a port of 0..65535, such as 127.0.0.1:7070 or [fd00::1]:7070";
}

bool IsLoopback(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    return host == "::1";
  }
  if (host == "localhost") return true;
  in_addr parsed{};
  return inet_pton(AF_INET, std::string(host).c_str(), &parsed) == 1 &&
         (ntohl(parsed.s_addr) >> 24) == 127;
}

absl::Status CheckListenAddress(std::string_view flag, std::string_view address, bool insecure) {
  const std::string given = absl::StrCat("--", ToAbsl(flag), "=", ToAbsl(address));
  if (!IsHostPort(address)) {
    return absl::InvalidArgumentError(absl::StrCat(given, ": ", HostPortRemedy(address)));
  }
  if (!insecure && !IsLoopback(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat(given, " is reachable from other machines and nothing is encrypted: bind ",
                     "to 127.0.0.1, give it a certificate (--tls-certificate, or "
                     "--metrics-tls-certificate for metrics), or add --insecure to accept that"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp

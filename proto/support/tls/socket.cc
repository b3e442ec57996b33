#include "proto/support/tls/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::tls {
namespace {

constexpr int kBacklog = 64;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& address, int flags) {
  const auto [host, port] = SplitHostPort(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

std::unique_ptr<Socket> NewSocket(const addrinfo& address) {
  return std::make_unique<Socket>(
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

int BoundPort(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

std::pair<std::string, std::string> SplitHostPort(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::string(host), std::string(address.substr(colon + 1))};
}

std::unique_ptr<Socket> Dial(const std::string& server, absl::Duration timeout) {
  const Addresses addresses = Resolve(server, 0);
  const timeval limit = absl::ToTimeval(timeout);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    auto socket = NewSocket(*one);
    if (socket->fd() < 0) continue;
    // The send limit also bounds connect(2).
    setsockopt(socket->fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(socket->fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(socket->fd(), one->ai_addr, one->ai_addrlen) == 0) return socket;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Socket>> ListenAt(const std::string& address, int* port) {
  const Addresses addresses = Resolve(address, AI_PASSIVE);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    auto socket = NewSocket(*one);
    const int on = 1;
    setsockopt(socket->fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket->fd(), one->ai_addr, one->ai_addrlen) == 0 &&
        listen(socket->fd(), kBacklog) == 0) {
      *port = BoundPort(socket->fd());
      return socket;
    }
    error = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot listen at ", address, ": ", std::strerror(error)));
}

}  // namespace fsdp::tls

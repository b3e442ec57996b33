#include "client/doctor/probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"

namespace fsdp::doctor {
namespace {

absl::Status Words(int error) { return absl::UnavailableError(std::strerror(error)); }

absl::Status Connect(const addrinfo& target, absl::Duration timeout) {
  const int fd = ::socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Words(errno);
  const absl::Cleanup close = [fd] { ::close(fd); };
  if (::connect(fd, target.ai_addr, target.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return Words(errno);
  pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (ready < 0) return Words(errno);
  if (ready == 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : Words(error);
}

}  // namespace

absl::Status ProbeTcp(const std::string& address, absl::Duration timeout) {
  if (!IsHostPort(address)) return absl::InvalidArgumentError(HostPortRemedy(address));
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &all);
  if (error != 0) return absl::NotFoundError(absl::StrCat(host, ": ", ::gai_strerror(error)));
  const absl::Cleanup free_all = [all] { ::freeaddrinfo(all); };
  absl::Status last = absl::NotFoundError(absl::StrCat(host, " has no address"));
  for (const addrinfo* target = all; target != nullptr; target = target->ai_next) {
    last = Connect(*target, timeout);
    if (last.ok()) return last;
  }
  return last;
}

}  // namespace fsdp::doctor

#ifndef FSDPCTL_PROTO_SUPPORT_TLS_SOCKET_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_SOCKET_H_

// The few TCP calls that handshakes of our own need. Private to proto/support/tls.

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp::tls {

// Closes its descriptor at the end.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  const int fd_;
};

// "[::1]:7070" -> "::1", "7070".
std::pair<std::string, std::string> SplitHostPort(std::string_view address);

// Connected, with `timeout` on this and every later call; null: nobody answers.
std::unique_ptr<Socket> Dial(const std::string& server, absl::Duration timeout);

// `port`: the one that was bound.
//   UNAVAILABLE  the address is taken or not this machine's
absl::StatusOr<std::unique_ptr<Socket>> ListenAt(const std::string& address, int* port);

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_SOCKET_H_

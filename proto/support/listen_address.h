#ifndef FSDPCTL_PROTO_SUPPORT_LISTEN_ADDRESS_H_
#define FSDPCTL_PROTO_SUPPORT_LISTEN_ADDRESS_H_

// Addresses in flags: "host:port", "[::1]:port". One rule for all programs about who may be let in.

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace fsdp {

// A host that is not empty, and a port of 0..65535. An IPv6 address stands in brackets, nothing
// else does: "::1:7070" could mean two things.
bool IsHostPort(std::string_view address);

// "HOST:PORT" of a host name or a numeric address, which gets brackets where it needs them.
std::string JoinHostPort(std::string_view host, int port);

// What is wrong with an address that IsHostPort refuses, and what to write: "want HOST:PORT ...".
std::string HostPortRemedy(std::string_view address);

// Of "host:port": only this machine reaches it. 127.0.0.0/8 in full, ::1 and localhost; other names
// are not looked up, and "127.0.0.1:80,0.0.0.0" is no address.
bool IsLoopback(std::string_view address);

// `flag` without its dashes, for the message.
//   INVALID_ARGUMENT     not host:port
//   FAILED_PRECONDITION  beyond loopback without `insecure`
absl::Status CheckListenAddress(std::string_view flag, std::string_view address, bool insecure);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_LISTEN_ADDRESS_H_

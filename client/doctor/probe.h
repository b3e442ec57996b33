#ifndef FSDPCTL_CLIENT_DOCTOR_PROBE_H_
#define FSDPCTL_CLIENT_DOCTOR_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace fsdp::doctor {

// Opens a TCP connection to "HOST:PORT" (an IPv6 address in brackets) and closes it: it says
// nothing, so it suits endpoints with and without TLS. Blocks for at most `timeout` and address.
//   INVALID_ARGUMENT   not HOST:PORT
//   NOT_FOUND          the name has no address
//   UNAVAILABLE        refused, or no route; the system's words
//   DEADLINE_EXCEEDED  no answer, as where a firewall drops
absl::Status ProbeTcp(const std::string& address, absl::Duration timeout);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_CLIENT_DOCTOR_PROBE_H_

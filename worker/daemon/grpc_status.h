#ifndef FSDPCTL_WORKER_DAEMON_GRPC_STATUS_H_
#define FSDPCTL_WORKER_DAEMON_GRPC_STATUS_H_

// What a call of the coordinator ended with, as the daemon's own code speaks of errors.

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace fsdp::daemon {

inline absl::Status FromGrpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_GRPC_STATUS_H_

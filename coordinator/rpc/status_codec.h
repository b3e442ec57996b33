#ifndef FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_
#define FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_

// absl::Status to grpc::Status. Payloads become google.rpc details in grpc-status-details-bin;
// exactly one ErrorInfo is among them: the payload's (coordinator/errors/api_error.h), or one made
// of the code.

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace fsdp::coordinator {

grpc::Status ToGrpcStatus(const absl::Status& status);

// "INVALID_ARGUMENT".
std::string CodeName(absl::StatusCode code);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_

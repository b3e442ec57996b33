#ifndef FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_
#define FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_

// absl::Status to grpc::Status. Payloads become google.rpc details in grpc-status-details-bin;
// exactly one ErrorInfo is among them: the payload's, or one made of the code.

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace fsdp::coordinator {

inline constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
inline constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";

grpc::Status ToGrpcStatus(const absl::Status& status);

// "INVALID_ARGUMENT".
std::string CodeName(absl::StatusCode code);

// INVALID_ARGUMENT with one BadRequest violation.
absl::Status BadField(const std::string& field, const std::string& problem);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_STATUS_CODEC_H_

#ifndef FSDPCTL_COORDINATOR_RPC_CALLER_H_
#define FSDPCTL_COORDINATOR_RPC_CALLER_H_

// Who is calling, from the connection.

#include "coordinator/coordinator.h"
#include "grpcpp/server_context.h"

namespace fsdp::coordinator {

CallerIdentity CallerOf(const grpc::CallbackServerContext& context);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_CALLER_H_

#ifndef FSDPCTL_COORDINATOR_RPC_PARSE_GUARD_H_
#define FSDPCTL_COORDINATOR_RPC_PARSE_GUARD_H_

// Requests whose bytes do not parse. gRPC's callback API answers them with UNIMPLEMENTED and an
// empty message before any handler sees them; this interceptor makes it
//   INVALID_ARGUMENT  REQUEST_MALFORMED, naming the method
// for every unary and server-streaming method. On a worker's stream such bytes end the stream.

#include <memory>

#include "coordinator/metrics/counters.h"
#include "grpcpp/support/server_interceptor.h"

namespace fsdp::coordinator {

// To be given to the server builder. `counters` (fsdp_rpc_total) outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewParseGuard(
    Counters& counters);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_PARSE_GUARD_H_

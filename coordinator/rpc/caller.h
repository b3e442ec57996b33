#ifndef FSDPCTL_COORDINATOR_RPC_CALLER_H_
#define FSDPCTL_COORDINATOR_RPC_CALLER_H_

// What a call brought along about who is calling, from its metadata and its connection.

#include <optional>
#include <string>
#include <vector>

#include "coordinator/security/identity.h"
#include "grpcpp/server_context.h"

namespace fsdp::coordinator {

Credentials CredentialsOf(const grpc::CallbackServerContext& context);

// "ipv4:127.0.0.1" of "ipv4:127.0.0.1:40312": what all connections of a host have in common.
std::string HostOf(const std::string& peer);

// All URIs of the client certificate, which TLS has checked; absent: the client has shown none.
std::optional<std::vector<std::string>> CertificateUris(const grpc::CallbackServerContext& context);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_CALLER_H_

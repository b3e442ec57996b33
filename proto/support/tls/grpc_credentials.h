#ifndef FSDPCTL_PROTO_SUPPORT_TLS_GRPC_CREDENTIALS_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_GRPC_CREDENTIALS_H_

// TLS (1.2 and later) for gRPC servers and channels, from our files. Thread-safe.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "proto/support/tls/tls_files.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp {

enum class ClientCertificates {
  // Asked for when there is an authority to check them by; a wrong one ends the handshake, none is
  // let in.
  kVerifyIfGiven,
  // None ends the handshake.
  kRequire,
};

// Every handshake is given what `reloader` holds then. What is returned and `reloader` outlive the
// server that they are added to.
std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    std::shared_ptr<const TlsReloader> reloader, ClientCertificates clients);

// Of a channel; in the clear when `files` is empty. The files are read now: a client that wants a
// renewed certificate makes a new channel.
//   errors as LoadTlsMaterial
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFrom(
    const TlsFiles& files, const TlsFileNames& names, absl::Time now);

// `server_name` is checked against the server's certificate instead of the address; empty: nothing.
void SetServerName(const std::string& server_name, grpc::ChannelArguments* arguments);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_GRPC_CREDENTIALS_H_

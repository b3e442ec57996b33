#ifndef FSDPCTL_PROTO_SUPPORT_TLS_TLS_PROBE_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_TLS_PROBE_H_

// Why a connection does not come about. gRPC says "failed to connect to all addresses"; one
// handshake of our own says whose certificate, what is wrong with it and what to do.
//
// Blocks for at most `timeout` per step of it; thread-safe.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp {

struct TlsProbe {
  // "host:port" or "[v6]:port"; others are not looked at.
  std::string server;
  // Empty: the connection is in the clear.
  TlsFiles files;
  // The authority itself, where it lies in no file.
  std::string ca_pem;
  TlsFileNames names;
  // The name that the server's certificate must have; empty: the host of `server`.
  std::string server_name;
  absl::Duration timeout = absl::Seconds(2);
};

// OK: nothing that TLS would explain (nobody listens, or the handshake is good).
//   UNAUTHENTICATED  certificates or their absence stand in the way: an authority that is not
//                    trusted, a certificate that is over or has another name, a client certificate
//                    that is missing or refused, TLS on one side alone
//   others           as LoadTlsMaterial
absl::Status ProbeTls(const TlsProbe& probe);

// The certificates that the server at `server` shows, unchecked: for pinning by fingerprint.
//   UNAVAILABLE      nobody answers
//   UNAUTHENTICATED  it does not speak TLS
absl::StatusOr<std::string> FetchChain(const std::string& server, absl::Duration timeout);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_TLS_PROBE_H_

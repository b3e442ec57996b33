#ifndef FSDPCTL_PROTO_SUPPORT_TLS_JOIN_TOKEN_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_JOIN_TOKEN_H_

// The text that lets a host in once: "fsdpjoin1.ID.SECRET.FINGERPRINT". The fingerprint (SHA-256)
// is that of the cluster's authority, so that a host that knows nothing yet cannot be lured
// elsewhere.
//
// Pure but for the system's random source; thread-safe. No message repeats a secret.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp::tls {

struct JoinToken {
  // 12 hex digits.
  std::string id;
  // 256 random bits, base64url.
  std::string secret;
  std::string authority_fingerprint;
};

absl::StatusOr<JoinToken> NewJoinToken(const std::string& authority_fingerprint);
std::string JoinTokenText(const JoinToken& token);
// White space around it is ignored.
//   INVALID_ARGUMENT  no such text; what it was is not told
absl::StatusOr<JoinToken> ParseJoinToken(std::string_view text);

// SHA-256, lower-case hex: what may be stored.
std::string HashOfSecret(std::string_view secret);
// In a time that tells nothing of where they differ.
bool SameHash(std::string_view a, std::string_view b);

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_JOIN_TOKEN_H_

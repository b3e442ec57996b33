#ifndef FSDPCTL_PROTO_SUPPORT_TLS_CERTIFICATE_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_CERTIFICATE_H_

// What a certificate says, and whom it names. Identities are URIs in the subject alternative name:
//
//   fsdp://user/NAME      a person or program that calls the API
//   fsdp://worker/ID      the worker daemon with this id; ID may end in `*` (any id that begins so)
//
// Pure functions, thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp::tls {

inline constexpr std::string_view kUserUri = "fsdp://user/";
inline constexpr std::string_view kWorkerUri = "fsdp://worker/";

struct Certificate {
  // "CN = coordinator, O = fsdp".
  std::string subject;
  std::string issuer;
  std::string common_name;
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;
  std::vector<std::string> uris;
  absl::Time not_before;
  absl::Time not_after;
  // Lower-case hex.
  std::string serial;
  // SHA-256 of the DER form, lower-case hex.
  std::string fingerprint;
  // May sign others.
  bool is_authority = false;
};

// Of a PEM text, in its order.
//   INVALID_ARGUMENT  no certificate, or a damaged one
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& pem);

// Is `key_pem` the private key of the first certificate of `certificate_pem`?
//   INVALID_ARGUMENT     one of them does not parse
//   FAILED_PRECONDITION  it is the key of another
absl::Status CheckKeyMatches(const std::string& certificate_pem, const std::string& key_pem);

// Whom it names: the first fsdp:// URI, else the common name.
std::string IdentityOf(const Certificate& certificate);

// Does `uri` name the worker `id`, exactly or by a trailing `*`?
bool UriNamesWorker(std::string_view uri, std::string_view id);

// 1-63 of [a-zA-Z0-9._-] that begin with a letter or digit: an id in an identity.
bool IsIdentityName(std::string_view name);

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_CERTIFICATE_H_

#ifndef FSDPCTL_COORDINATOR_SECURITY_IDENTITY_H_
#define FSDPCTL_COORDINATOR_SECURITY_IDENTITY_H_

// Who calls, by what the call brought along.
//
// Pure, thread-safe: a policy does not change; a new access file is a new policy.
//
// Errors, all UNAUTHENTICATED, none with a token in it:
//   TOKEN_MISSING            neither a token nor a client certificate
//   AUTHORIZATION_MALFORMED  the metadatum is not "Bearer TOKEN"
//   TOKEN_UNKNOWN, CERTIFICATE_UNKNOWN  no entry has it
//   CREDENTIAL_EXPIRED       its entry's time is over
//   CERTIFICATE_REVOKED      `revoked` names the certificate that was shown, with a token or
//   without

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/security/revocation.h"
#include "coordinator/security/shown_certificate.h"
#include "proto/support/access_file.h"

namespace fsdp::coordinator {

// As the wire brought them.
struct Credentials {
  // Of the metadata; absent: none.
  std::optional<std::string> authorization;
  // Of a client certificate that TLS has verified: the URI of its subject alternative name, else
  // its common name; empty: none.
  std::string certificate;
  // The same certificate; null: none.
  std::shared_ptr<ShownCertificate> shown;
};

struct Identity {
  std::string subject = "anonymous";
  std::vector<Grant> grants;
  // What Recheck looks up again: a token's hash or a certificate's name; empty: nobody asked.
  std::string credential;
  // What the connection has shown; null: no certificate.
  std::shared_ptr<ShownCertificate> shown;
};

// Admin and worker at once: everybody, where there is no access file. A certificate's name stays
// the subject.
Identity Unrestricted(const Credentials& credentials);

class AccessPolicy {
 public:
  explicit AccessPolicy(AccessFile file);

  // A token counts before a certificate: it was sent on purpose.
  [[nodiscard]] absl::StatusOr<Identity> Identify(const Credentials& credentials,
                                                  absl::Time now) const;
  // The identity again, as the policy has it now.
  [[nodiscard]] absl::StatusOr<Identity> Recheck(const Identity& identity, absl::Time now) const;

 private:
  [[nodiscard]] absl::Status CheckRevocation(const std::shared_ptr<ShownCertificate>& shown) const;
  [[nodiscard]] absl::StatusOr<Identity> ByCredentials(const Credentials& credentials,
                                                       absl::Time now) const;
  [[nodiscard]] absl::StatusOr<Identity> Find(const std::string& credential, bool token,
                                              absl::Time now) const;

  // By token hash and by certificate name; hashes have 64 digits and names a scheme or none, so
  // they do not meet.
  std::map<std::string, AccessEntry> entries_;
  RevocationList revoked_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_IDENTITY_H_

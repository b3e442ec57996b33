#ifndef FSDPCTL_COORDINATOR_SECURITY_REVOCATION_H_
#define FSDPCTL_COORDINATOR_SECURITY_REVOCATION_H_

// Certificates that were taken back before their end: `revoked` of the access file.
//
// Pure, thread-safe.

#include <vector>

#include "absl/status/status.h"
#include "proto/support/access_file.h"
#include "proto/support/tls/certificate.h"

namespace fsdp::coordinator {

class RevocationList {
 public:
  explicit RevocationList(std::vector<RevokedCertificate> revoked) : revoked_(std::move(revoked)) {}

  [[nodiscard]] bool empty() const { return revoked_.empty(); }
  //   UNAUTHENTICATED  CERTIFICATE_REVOKED
  [[nodiscard]] absl::Status Check(const tls::Certificate& certificate) const;

 private:
  std::vector<RevokedCertificate> revoked_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_REVOCATION_H_

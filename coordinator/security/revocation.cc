#include "coordinator/security/revocation.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

bool HasName(const tls::Certificate& certificate, std::string_view name) {
  const auto matches = [&](std::string_view text) {
    return name.ends_with('*') ? text.starts_with(name.substr(0, name.size() - 1)) : text == name;
  };
  // The common name counts where there is no URI, as it does for identities.
  if (certificate.uris.empty()) return matches(certificate.common_name);
  return std::any_of(certificate.uris.begin(), certificate.uris.end(), matches);
}

bool Covers(const RevokedCertificate& revoked, const tls::Certificate& certificate) {
  if (!revoked.serial.empty()) return revoked.serial == HexDigits(certificate.serial);
  if (!revoked.fingerprint.empty()) return revoked.fingerprint == certificate.fingerprint;
  return HasName(certificate, revoked.certificate) &&
         certificate.not_before < revoked.issued_before;
}

}  // namespace

absl::Status RevocationList::Check(const tls::Certificate& certificate) const {
  const bool revoked = std::any_of(revoked_.begin(), revoked_.end(),
                                   [&](const auto& one) { return Covers(one, certificate); });
  if (!revoked) return absl::OkStatus();
  return WithInfo(
      absl::UnauthenticatedError(absl::StrCat(
          "the certificate of ", tls::IdentityOf(certificate), " (serial ", certificate.serial,
          ") was revoked in the coordinator's access file: an administrator makes another one")),
      "CERTIFICATE_REVOKED",
      {{"certificate", tls::IdentityOf(certificate)}, {"serial", certificate.serial}});
}

}  // namespace fsdp::coordinator

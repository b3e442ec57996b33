#include "coordinator/security/identity.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/access_token.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Enrolment gives workers such certificates; they need no entry of their own.
constexpr std::string_view kWorkerUri = "fsdp://worker/";

absl::Status Refuse(const std::string& text, std::string_view reason, ErrorMetadata metadata = {}) {
  return WithInfo(absl::UnauthenticatedError(text), reason, std::move(metadata));
}

// The token of "Bearer TOKEN".
absl::StatusOr<std::string> BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme))) {
    const std::string_view token =
        FromAbsl(absl::StripAsciiWhitespace(ToAbsl(authorization.substr(kScheme.size()))));
    if (IsTokenText(token)) return std::string(token);
  }
  return Refuse(
      "the call's authorization is no token: want the metadatum `authorization: Bearer TOKEN` with "
      "a token of `fsdpctl admin create-token`",
      "AUTHORIZATION_MALFORMED");
}

}  // namespace

Identity Unrestricted(const Credentials& credentials) {
  Identity identity;
  if (!credentials.certificate.empty()) identity.subject = credentials.certificate;
  identity.grants = {{.role = Role::kAdmin, .queues = {}}, {.role = Role::kWorker, .queues = {}}};
  return identity;
}

AccessPolicy::AccessPolicy(AccessFile file) : revoked_(std::move(file.revoked)) {
  for (AccessEntry& entry : file.entries) {
    std::string key = entry.token_sha256.empty() ? entry.certificate : entry.token_sha256;
    entries_.emplace(std::move(key), std::move(entry));
  }
}

absl::Status AccessPolicy::CheckRevocation(const std::shared_ptr<ShownCertificate>& shown) const {
  if (revoked_.empty() || shown == nullptr) return absl::OkStatus();
  const tls::Certificate* certificate = shown->Read();
  if (certificate != nullptr) return revoked_.Check(*certificate);
  return Refuse("the client certificate cannot be read, so that nobody knows if it was revoked",
                "CERTIFICATE_UNKNOWN");
}

absl::StatusOr<Identity> AccessPolicy::Identify(const Credentials& credentials,
                                                absl::Time now) const {
  // Beside a token too: who lost a key may have lost the token that lay with it.
  RETURN_IF_ERROR(CheckRevocation(credentials.shown));
  ASSIGN_OR_RETURN(Identity identity, ByCredentials(credentials, now));
  identity.shown = credentials.shown;
  return identity;
}

absl::StatusOr<Identity> AccessPolicy::ByCredentials(const Credentials& credentials,
                                                     absl::Time now) const {
  if (credentials.authorization) {
    ASSIGN_OR_RETURN(const std::string token, BearerToken(*credentials.authorization));
    return Find(TokenHash(token), /*token=*/true, now);
  }
  if (!credentials.certificate.empty()) {
    return Find(credentials.certificate, /*token=*/false, now);
  }
  return Refuse(
      "the coordinator wants to know who calls: send a token (fsdpctl: --token-file or "
      "FSDPCTL_TOKEN_FILE; fsdp-worker: --token-file), which an administrator makes with `fsdpctl "
      "admin create-token`, or a client certificate",
      "TOKEN_MISSING");
}

absl::StatusOr<Identity> AccessPolicy::Recheck(const Identity& identity, absl::Time now) const {
  constexpr std::size_t kHashChars = 64;
  RETURN_IF_ERROR(CheckRevocation(identity.shown));
  return Find(identity.credential, identity.credential.size() == kHashChars, now);
}

absl::StatusOr<Identity> AccessPolicy::Find(const std::string& credential, bool token,
                                            absl::Time now) const {
  const auto found = entries_.find(credential);
  if (found == entries_.end()) {
    if (token) {
      return Refuse(
          "the coordinator does not know this token: it was revoked, or is another cluster's; ask "
          "an administrator for one",
          "TOKEN_UNKNOWN");
    }
    if (credential.starts_with(kWorkerUri)) {
      return Identity{.subject = credential,
                      .grants = {{.role = Role::kWorker, .queues = {}}},
                      .credential = credential};
    }
    return Refuse(absl::StrCat("no identity has the certificate ", credential,
                               ": an administrator adds one to the access file"),
                  "CERTIFICATE_UNKNOWN", {{"certificate", credential}});
  }
  const AccessEntry& entry = found->second;
  if (now >= entry.expires) {
    const std::string when =
        absl::FormatTime(absl::RFC3339_sec, entry.expires, absl::UTCTimeZone());
    return Refuse(absl::StrCat("the ", token ? "token" : "certificate", " of ", entry.name,
                               " expired at ", when, ": ask an administrator for a new one"),
                  "CREDENTIAL_EXPIRED", {{"subject", entry.name}, {"expired", when}});
  }
  return Identity{.subject = entry.name, .grants = entry.grants, .credential = credential};
}

}  // namespace fsdp::coordinator

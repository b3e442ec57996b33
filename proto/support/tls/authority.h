#ifndef FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_H_

// A certificate authority of one cluster: EC P-256, SHA-256, X.509 v3. What `fsdpctl ca` keeps in a
// folder and the coordinator enrols workers with.
//
// Pure but for the system's random source; thread-safe.
//
// Errors: INVALID_ARGUMENT names the value that cannot go into a certificate; INTERNAL is
// OpenSSL's.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls/certificate.h"

namespace fsdp::tls {

// PEM texts.
struct KeyPair {
  std::string certificate;
  std::string key;
};

enum class Usage { kServer, kClient, kServerAndClient };

// What a certificate is to say.
struct CertificateRequest {
  // At most 64 characters.
  std::string common_name;
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;
  std::vector<std::string> uris;
  Usage usage = Usage::kClient;
  absl::Time not_before;
  absl::Time not_after;
};

// A new EC P-256 key, PKCS #8.
absl::StatusOr<std::string> NewKey();
// A request signed by `key_pem` that asks for `uris`.
absl::StatusOr<std::string> NewSigningRequest(const std::string& key_pem,
                                              const std::string& common_name,
                                              const std::vector<std::string>& uris);
// What a PEM request asks for; its signature is checked, its times are not set.
absl::StatusOr<CertificateRequest> ReadSigningRequest(const std::string& request_pem);

// Constant after Create.
class Authority {
 public:
  // A self-signed authority and its key.
  static absl::StatusOr<KeyPair> New(const std::string& common_name, absl::Time not_before,
                                     absl::Time not_after);
  //   FAILED_PRECONDITION  the certificate may not sign others, or the key is another's
  static absl::StatusOr<std::unique_ptr<Authority>> Create(const KeyPair& pair);
  virtual ~Authority() = default;

  // Signs what `request` says for the public key of `public_key_pem`: a private key, a signing
  // request or a certificate, of whose other contents nothing is taken.
  //   FAILED_PRECONDITION  it would outlive the authority
  [[nodiscard]] virtual absl::StatusOr<std::string> Issue(
      const CertificateRequest& request, const std::string& public_key_pem) const = 0;
  [[nodiscard]] virtual const Certificate& certificate() const = 0;
  [[nodiscard]] virtual const std::string& certificate_pem() const = 0;
};

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_H_

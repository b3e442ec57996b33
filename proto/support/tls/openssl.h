#ifndef FSDPCTL_PROTO_SUPPORT_TLS_OPENSSL_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_OPENSSL_H_

// The translator of OpenSSL: owning handles, its error queue as a status, PEM in and out. Private
// to proto/support/tls. Thread-safe: handles belong to one thread at a time.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp::tls {

template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, OpensslFree<X509_REQ_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using StorePtr = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslFree<SSL_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;

// INTERNAL, "call: what OpenSSL says"; empties this thread's error queue.
absl::Status OpensslToStatus(std::string_view call);

// All certificates of a PEM text, in its order.
//   INVALID_ARGUMENT  none, or a damaged one
absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const std::string& pem);
//   INVALID_ARGUMENT  no private key, an encrypted one, or damage
absl::StatusOr<KeyPtr> ParseKey(const std::string& pem);
//   INVALID_ARGUMENT  no request, or one whose signature is not its key's
absl::StatusOr<RequestPtr> ParseRequest(const std::string& pem);

std::string CertificatePem(X509* certificate);
std::string KeyPem(EVP_PKEY* key);
std::string RequestPem(X509_REQ* request);

absl::Time FromAsn1Time(const ASN1_TIME* time);
// SHA-256 of the DER form, lower-case hex.
std::string Fingerprint(X509* certificate);

// A store that trusts the certificates of `ca_pem` (empty: none).
absl::StatusOr<StorePtr> MakeTrustStore(const std::string& ca_pem);

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_OPENSSL_H_

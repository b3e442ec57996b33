#ifndef FSDPCTL_PROTO_SUPPORT_TLS_TLS_FILES_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_TLS_FILES_H_

// Where a program's certificate, its key and the certificates it trusts lie, and what is in them.
// Part of the configuration of all three programs.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls/certificate.h"

namespace fsdp {

// As TlsFiles::ca of a client: the authorities that the machine trusts.
inline constexpr char kSystemAuthorities[] = "system";

// PEM files; all empty: no TLS.
struct TlsFiles {
  // Own certificate; the certificates that lead to its authority may follow it.
  std::string certificate;
  std::string key;
  // The authorities that the other side is checked by.
  std::string ca;

  [[nodiscard]] bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

// How a user set the three, for messages: "--tls-certificate", "tlsCertificate (FSDPCTL_…)".
struct TlsFileNames {
  std::string certificate = "--tls-certificate";
  std::string key = "--tls-key";
  std::string ca = "--tls-ca";
};

// A server needs certificate and key; a client the authority, and both or neither of the pair.
//   INVALID_ARGUMENT  one is named without the other; the message says which and what to add
absl::Status CheckServerFiles(const TlsFiles& files, const TlsFileNames& names);
absl::Status CheckClientFiles(const TlsFiles& files, const TlsFileNames& names);

// The contents, read together and checked together.
struct TlsMaterial {
  std::string certificate_pem;
  std::string key_pem;
  std::string ca_pem;
  // Of certificate_pem, the own one first; empty without one.
  std::vector<tls::Certificate> chain;
  std::vector<tls::Certificate> authorities;
};

// Reads what `files` names.
//   NOT_FOUND, PERMISSION_DENIED, INTERNAL  a file cannot be read
//   INVALID_ARGUMENT     a file holds no PEM of its kind
//   FAILED_PRECONDITION  the key is another certificate's; an own certificate is over, or not begun
//                        at `now`; the key can be read by everybody on this machine
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files, const TlsFileNames& names,
                                            absl::Time now);

// The own certificate's end; InfiniteFuture without one.
absl::Time CertificateExpiry(const TlsMaterial& material);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_TLS_FILES_H_

#ifndef FSDPCTL_PROTO_SUPPORT_TLS_FILES_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_FILES_H_

// Where a program's certificate, its key and the certificates it trusts lie. Part of the
// configuration of all three programs, so that their flags and files do not change when TLS comes;
// this release refuses to start with any of them set rather than talk in the clear.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp {

// PEM files; all empty: no TLS.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string ca;

  [[nodiscard]] bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

//   UNIMPLEMENTED  a file is named: TLS is not in this release; `where` says how it was set
inline absl::Status CheckTlsFiles(const TlsFiles& files, std::string_view where) {
  if (files.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      ToAbsl(where),
      ": TLS is not in this release; leave it out, and keep the service on loopback or in a "
      "network that you trust"));
}

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_FILES_H_

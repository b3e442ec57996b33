#ifndef FSDPCTL_COORDINATOR_SECURITY_SHOWN_CERTIFICATE_H_
#define FSDPCTL_COORDINATOR_SECURITY_SHOWN_CERTIFICATE_H_

// A client certificate that TLS has verified, read when somebody wants to know more of it than its
// name: that takes longer than the rest of a call's admission.
//
// Thread-safe.

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/support/tls/certificate.h"

namespace fsdp::coordinator {

class ShownCertificate {
 public:
  explicit ShownCertificate(std::string pem) : pem_(std::move(pem)) {}

  // Null: it cannot be read.
  const tls::Certificate* Read() {
    std::call_once(once_, [this] {
      auto chain = tls::ReadCertificates(pem_);
      if (chain.ok()) certificate_ = std::move(chain->front());
    });
    return certificate_ ? &*certificate_ : nullptr;
  }

 private:
  const std::string pem_;
  std::once_flag once_;
  std::optional<tls::Certificate> certificate_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_SHOWN_CERTIFICATE_H_

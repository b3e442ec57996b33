#ifndef FSDPCTL_CLIENT_DOCTOR_TLS_CHECKS_H_
#define FSDPCTL_CLIENT_DOCTOR_TLS_CHECKS_H_

// Certificates: whose, and for how long.

#include <string>

#include "absl/time/time.h"
#include "client/settings.h"
#include "proto/support/tls/certificate.h"
#include "worker/doctor/finding.h"

namespace fsdp::doctor {

// Pure. A warning in the certificate's last month, or in the last quarter of a shorter life; a
// fault outside of its time. `subject`: whose it is, for people.
Finding CheckCertificate(const std::string& subject, const tls::Certificate& certificate,
                         absl::Time now);

// Ours and the authorities' of the settings, and the one that the coordinator shows, which is
// fetched (blocks for a few seconds at most). Nothing without TLS.
Findings CheckTls(const Settings& settings, absl::Time now);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_CLIENT_DOCTOR_TLS_CHECKS_H_

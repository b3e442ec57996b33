#ifndef FSDPCTL_PROTO_SUPPORT_TLS_TLS_METRICS_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_TLS_METRICS_H_

// What metrics say of a certificate: when it ends, and whether what lies on disk can be used.

#include "proto/support/metric_family.h"
#include "proto/support/tls/tls_reloader.h"

namespace fsdp {

// fsdp_tls_certificate_expiry_timestamp_seconds and fsdp_tls_files_unusable, kind as the
// reloader's; the authorities' as "{kind}_ca", the first of them to end.
void AddTlsMetrics(const TlsReloader& reloader, MetricFamilies* families);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_TLS_METRICS_H_

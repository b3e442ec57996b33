#include "proto/support/tls/tls_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

constexpr char kExpiry[] = "fsdp_tls_certificate_expiry_timestamp_seconds";

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

void AddTlsMetrics(const TlsReloader& reloader, MetricFamilies* families) {
  const std::shared_ptr<const TlsMaterial> material = reloader.current();
  if (!material->chain.empty()) {
    families->Add(kExpiry, {reloader.kind()}, Seconds(CertificateExpiry(*material)));
  }
  absl::Time authority_end = absl::InfiniteFuture();
  for (const tls::Certificate& authority : material->authorities) {
    authority_end = std::min(authority_end, authority.not_after);
  }
  if (!material->authorities.empty()) {
    families->Add(kExpiry, {absl::StrCat(reloader.kind(), "_ca")}, Seconds(authority_end));
  }
  families->Add("fsdp_tls_files_unusable", {reloader.kind()}, reloader.problem().ok() ? 0 : 1);
}

}  // namespace fsdp

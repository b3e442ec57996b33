#include "client/doctor/tls_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/address_list.h"
#include "proto/support/tls/tls_files.h"
#include "proto/support/tls/tls_probe.h"

namespace fsdp::doctor {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kMonth = absl::Hours(30 * 24);
constexpr absl::Duration kFetchTimeout = absl::Seconds(2);

Finding Tls(std::string subject, std::string measured) {
  return {.scope = "tls",
          .check = "certificate",
          .subject = std::move(subject),
          .measured = std::move(measured)};
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

}  // namespace

Finding CheckCertificate(const std::string& subject, const tls::Certificate& certificate,
                         absl::Time now) {
  const absl::Duration left = certificate.not_after - now;
  Finding finding = Tls(
      subject, absl::StrFormat("%s, until %s (%d days)", tls::IdentityOf(certificate),
                               Day(certificate.not_after), std::max<std::int64_t>(0, left / kDay)));
  const absl::Duration early =
      std::min(kMonth, (certificate.not_after - certificate.not_before) / 4);
  if (now < certificate.not_before) {
    finding.level = Level::kFault;
    finding.measured = absl::StrCat(tls::IdentityOf(certificate), ", only from ",
                                    Day(certificate.not_before), " on");
    finding.remedy = "set this machine's clock, or issue the certificate anew";
  } else if (left <= absl::ZeroDuration()) {
    finding.level = Level::kFault;
    finding.remedy = "it is over: nobody connects with it; issue it anew (fsdpctl ca renew)";
  } else if (left < early) {
    finding.level = Level::kWarning;
    finding.remedy =
        "issue it anew in time (fsdpctl ca renew); programs read it again by themselves";
  }
  return finding;
}

Findings CheckTls(const Settings& settings, absl::Time now) {
  Findings findings;
  if (settings.tls.empty()) return findings;
  const auto material = LoadTlsMaterial(settings.tls, settings.tls_names, now);
  if (!material.ok()) {
    Finding finding = Tls("files", std::string(material.status().message()));
    finding.level = Level::kFault;
    finding.remedy = "mend the files that the message names, or name others";
    return {finding};
  }
  if (!material->chain.empty()) {
    findings.push_back(CheckCertificate("own", material->chain.front(), now));
  }
  for (const tls::Certificate& authority : material->authorities) {
    findings.push_back(
        CheckCertificate(absl::StrCat("authority ", authority.common_name), authority, now));
  }
  // Who does not answer is the coordinator's finding.
  const std::vector<std::string> addresses = SplitAddresses(settings.server);
  for (const std::string& address : addresses) {
    const auto chain = FetchChain(address, kFetchTimeout);
    if (!chain.ok()) continue;
    const auto shown = tls::ReadCertificates(*chain);
    if (!shown.ok() || shown->empty()) continue;
    const std::string subject =
        addresses.size() == 1 ? "coordinator" : absl::StrCat("coordinator ", address);
    findings.push_back(CheckCertificate(subject, shown->front(), now));
  }
  return findings;
}

}  // namespace fsdp::doctor

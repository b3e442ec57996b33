#include "coordinator/config/options.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Everything that is missing at once.
absl::Status CheckHardened(const Options& options) {
  std::vector<std::string> missing;
  if (options.tls.empty()) missing.emplace_back("--tls-certificate and --tls-key");
  if (options.access_file.empty()) missing.emplace_back("--access");
  if (options.audit_log.empty()) missing.emplace_back("--audit-log");
  if (options.allowed_paths.empty()) missing.emplace_back("--allow-path");
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--hardened wants ", absl::StrJoin(missing, ", "), " too"));
  }
  if (options.insecure) {
    return absl::FailedPreconditionError(
        "--hardened and --insecure contradict each other: leave one out");
  }
  return absl::OkStatus();
}

absl::Status CheckLimits(const Options& options) {
  const std::pair<const char*, double> not_negative[] = {
      {"max-requests-per-second", options.limits.requests_per_second},
      {"max-streams-per-caller", static_cast<double>(options.limits.streams)},
      {"max-spec-bytes", static_cast<double>(options.limits.spec_bytes)}};
  for (const auto& [name, value] : not_negative) {
    if (value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", value, ": want a number above zero, or 0 for no limit"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTls(const Options& options) {
  RETURN_IF_ERROR(CheckServerFiles(options.tls, ServerTlsNames()));
  RETURN_IF_ERROR(CheckServerFiles(options.metrics_tls, MetricsTlsNames()));
  if (options.require_client_certificate && options.tls.ca.empty()) {
    return absl::InvalidArgumentError(
        "--require-client-certificate is set without --tls-client-ca: add --tls-client-ca (the "
        "authority that clients' certificates are checked by)");
  }
  if (!options.enroll_ca.empty() && options.tls.certificate.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--enroll-ca=", options.enroll_ca,
        " is set without --tls-certificate: add it and "
        "--tls-key (fsdpctl ca issue server), since workers check whom they enrol with"));
  }
  if (!options.enroll_ca.empty() && options.require_client_certificate) {
    return absl::InvalidArgumentError(
        "--require-client-certificate and --enroll-ca exclude each other: a worker that enrols has "
        "no certificate yet. Leave the first out: with authorities and without --access every "
        "call but the enrolment is refused without a certificate anyway");
  }
  if (options.enroll_validity < absl::Seconds(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--enroll-validity=", absl::FormatDuration(options.enroll_validity),
                     ": want at least 1s, such as 720h"));
  }
  if (options.tls_reload_period <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-reload-period=", absl::FormatDuration(options.tls_reload_period),
                     ": must be above zero"));
  }
  return absl::OkStatus();
}

}  // namespace

TlsFileNames ServerTlsNames() { return {.ca = "--tls-client-ca"}; }

TlsFileNames MetricsTlsNames() {
  return {.certificate = "--metrics-tls-certificate",
          .key = "--metrics-tls-key",
          .ca = "--metrics-tls-client-ca"};
}

absl::Status ValidateOptions(const Options& options) {
  RETURN_IF_ERROR(CheckTls(options));
  RETURN_IF_ERROR(
      CheckListenAddress("listen", options.listen, options.insecure || !options.tls.empty()));
  if (!options.metrics_listen.empty()) {
    RETURN_IF_ERROR(CheckListenAddress("metrics-listen", options.metrics_listen,
                                       options.insecure || !options.metrics_tls.empty()));
  }
  if (!options.web_listen.empty()) {
    RETURN_IF_ERROR(CheckListenAddress("web-listen", options.web_listen,
                                       options.insecure || !options.tls.empty()));
  }
  if (options.hardened) RETURN_IF_ERROR(CheckHardened(options));
  RETURN_IF_ERROR(CheckLimits(options));
  const TimingOptions& timing = options.timing;
  const std::pair<const char*, absl::Duration> positive[] = {
      {"heartbeat", timing.heartbeat_period},
      {"suspect-after", timing.suspect_after},
      {"lost-after", timing.lost_after},
      {"stream-grace", timing.stream_grace},
      {"tick", timing.tick_period},
      {"adoption-grace", timing.adoption_grace},
      {"forget-lost-after", timing.forget_lost_after}};
  for (const auto& [name, value] : positive) {
    if (value <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", absl::FormatDuration(value), ": must be above zero"));
    }
  }
  if (timing.suspect_after <= timing.heartbeat_period || timing.lost_after < timing.suspect_after) {
    return absl::InvalidArgumentError(absl::StrCat(
        "want heartbeat < suspect-after <= lost-after, got ",
        absl::FormatDuration(timing.heartbeat_period), ", ",
        absl::FormatDuration(timing.suspect_after), ", ", absl::FormatDuration(timing.lost_after)));
  }
  if (timing.shrink_after < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--shrink-after=", absl::FormatDuration(timing.shrink_after), ": must not be below zero"));
  }
  const double exclude_below = options.straggler.exclude_below;
  if (!(exclude_below >= 0 && exclude_below < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--exclude-stragglers-below=", exclude_below,
                                                   ": want 0 (never) or less than 1"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator

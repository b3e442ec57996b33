#include "coordinator/config/options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

absl::Status ValidateOptions(const Options& options) {
  RETURN_IF_ERROR(CheckTlsFiles(options.tls, "--tls-certificate, --tls-key, --tls-client-ca"));
  RETURN_IF_ERROR(CheckListenAddress("listen", options.listen, options.insecure));
  if (!options.metrics_listen.empty()) {
    RETURN_IF_ERROR(CheckListenAddress("metrics-listen", options.metrics_listen, options.insecure));
  }
  if (options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "--state-dir is not set: give the directory that jobs are kept in, such as "
        "/var/lib/fsdp-coordinator");
  }
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
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator

#include "coordinator/config/options.h"

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status CheckAddress(const std::string& flag, const std::string& address, bool insecure) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", address,
                                                   ": want HOST:PORT with a port of 0..65535, such "
                                                   "as 127.0.0.1:7070"));
  }
  if (!insecure && !IsLoopback(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--", flag, "=", address,
                     " is reachable from other machines and nothing is encrypted: bind ",
                     "to 127.0.0.1, or add --insecure to accept that"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLoopback(const std::string& address) {
  std::string_view host = address;
  if (const size_t colon = host.rfind(':'); colon != std::string_view::npos) {
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

absl::Status ValidateOptions(const Options& options) {
  RETURN_IF_ERROR(CheckTlsFiles(options.tls, "--tls-certificate, --tls-key, --tls-client-ca"));
  RETURN_IF_ERROR(CheckAddress("listen", options.listen, options.insecure));
  if (!options.metrics_listen.empty()) {
    RETURN_IF_ERROR(CheckAddress("metrics-listen", options.metrics_listen, options.insecure));
  }
  if (options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "--state-dir is not set: give the directory that jobs are kept in, such as "
        "/var/lib/fsdp-coordinator");
  }
  const TimingOptions& timing = options.timing;
  const std::pair<const char*, absl::Duration> positive[] = {
      {"heartbeat", timing.heartbeat_period}, {"suspect-after", timing.suspect_after},
      {"lost-after", timing.lost_after},      {"stream-grace", timing.stream_grace},
      {"tick", timing.tick_period},           {"adoption-grace", timing.adoption_grace}};
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

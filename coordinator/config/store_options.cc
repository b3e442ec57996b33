#include "coordinator/config/store_options.h"

#include "absl/strings/str_cat.h"
#include "coordinator/store/etcd/etcd_address.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status CheckEtcd(const StoreOptions& store, const Options& options) {
  ASSIGN_OR_RETURN(const EtcdAddress address, ParseEtcdAddress(store.store));
  if (!options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--state-dir=", options.state_dir, " and --store=", store.store,
                     " exclude each other: jobs are kept in etcd. Leave one out; fsdp-coordinator "
                     "migrate copies what is in the directory"));
  }
  RETURN_IF_ERROR(CheckClientFiles(store.tls, EtcdTlsNames()));
  for (const std::string& member : address.members) {
    if (!store.tls.empty() || options.insecure || IsLoopback(member)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--store: ", member,
                     " is another machine, and jobs would travel in the clear: give "
                     "--etcd-tls-ca, or --insecure in a network that you trust"));
  }
  if (store.lease < absl::Seconds(2) || store.lease % absl::Seconds(1) != absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--leader-lease=", absl::FormatDuration(store.lease),
                     ": want whole seconds, at least 2s (etcd keeps none that is shorter)"));
  }
  constexpr std::int64_t kLeastHistory = 64 << 10;
  if (store.history_bytes < kLeastHistory) {
    return absl::InvalidArgumentError(absl::StrCat("--etcd-history-bytes=", store.history_bytes,
                                                   ": want at least ", kLeastHistory));
  }
  if (store.compaction_period < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--etcd-compaction-period=", absl::FormatDuration(store.compaction_period),
                     ": want 0 or more"));
  }
  return absl::OkStatus();
}

}  // namespace

TlsFileNames EtcdTlsNames() {
  return {.certificate = "--etcd-tls-certificate", .key = "--etcd-tls-key", .ca = "--etcd-tls-ca"};
}

absl::Status ValidateStoreOptions(const StoreOptions& store, const Options& options) {
  if (!store.advertise.empty() && !IsHostPort(store.advertise)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise=", store.advertise, ": ", HostPortRemedy(store.advertise)));
  }
  if (IsEtcdAddress(store.store)) return CheckEtcd(store, options);
  if (store.store != "sqlite") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--store=", store.store,
        ": want sqlite (with --state-dir), or etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"));
  }
  if (options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "--state-dir is not set: give the directory that jobs are kept in, such as "
        "/var/lib/fsdp-coordinator");
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator

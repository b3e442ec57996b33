#include "coordinator/store_verbs.h"

#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/store/backup.h"
#include "coordinator/store/copy_store.h"
#include "coordinator/store/etcd/election.h"
#include "coordinator/store/etcd/etcd_address.h"
#include "coordinator/store/etcd/etcd_client.h"
#include "coordinator/store/etcd/etcd_store.h"
#include "coordinator/store/sqlite_store.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status Missing(const std::string& verb, const char* flag, const std::string& example) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is not set: ", verb, " wants ", flag, "=", example));
}

// A store that nobody else uses, and what it stands on.
struct OfflineStore {
  std::unique_ptr<EtcdClient> etcd;
  std::unique_ptr<Election> election;
  // The store, of either kind; `etcd_store` is it where it is on etcd.
  std::unique_ptr<JobStore> store;
  EtcdStore* etcd_store = nullptr;
};

// Leads for as long as it takes, so that no coordinator can begin to.
absl::StatusOr<OfflineStore> OpenEtcd(const std::string& text, const StoreVerbFlags& flags) {
  StoreOptions options = flags.store;
  options.store = text;
  RETURN_IF_ERROR(ValidateStoreOptions(options, {.insecure = flags.options.insecure}));
  ASSIGN_OR_RETURN(const EtcdAddress address, ParseEtcdAddress(text));
  OfflineStore offline;
  ASSIGN_OR_RETURN(offline.etcd, EtcdClient::Create({.members = address.members,
                                                     .tls = options.tls,
                                                     .tls_names = EtcdTlsNames()}));
  etcd::RangeRequest request;
  request.set_key(EtcdKeys(address.prefix).Leader());
  ASSIGN_OR_RETURN(const etcd::RangeResponse leader, offline.etcd->Range(request));
  if (leader.kvs_size() > 0) {
    etcd_v1::Leader record;
    record.ParseFromString(leader.kvs(0).value());
    return absl::FailedPreconditionError(
        absl::StrCat(text, ": the coordinator at ", record.address(), " (pid ", record.pid(),
                     " on ", record.host(), ") leads there: stop all coordinators first"));
  }
  ElectionOptions election{.prefix = address.prefix, .ttl = absl::Seconds(10)};
  election.self.set_address("migrate");
  election.self.set_pid(getpid());
  election.self.set_incarnation(
      absl::StrCat("migrate-", getpid(), "-", absl::GetCurrentTimeNanos()));
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) election.self.set_host(host.data());
  offline.election = std::make_unique<Election>(std::move(election), offline.etcd.get());
  // Whoever loses its lease finds that its writes are refused.
  ASSIGN_OR_RETURN(const Leadership leadership, offline.election->Campaign([](absl::Status) {}));
  ASSIGN_OR_RETURN(auto store, EtcdStore::Open({.prefix = address.prefix,
                                                .history_bytes = options.history_bytes},
                                               offline.etcd.get(), leadership));
  offline.etcd_store = store.get();
  offline.store = std::move(store);
  return offline;
}

absl::StatusOr<OfflineStore> OpenOffline(const std::string& text, const StoreVerbFlags& flags) {
  if (IsEtcdAddress(text)) return OpenEtcd(text, flags);
  OfflineStore offline;
  ASSIGN_OR_RETURN(offline.store, SqliteStore::Open({.directory = text}));
  return offline;
}

absl::StatusOr<std::string> Migrate(const StoreVerbFlags& flags) {
  const std::string example = "DIRECTORY or etcd://HOST:PORT[,HOST:PORT...][/PREFIX]";
  if (flags.from.empty()) return Missing("migrate", "--from", example);
  if (flags.to.empty()) return Missing("migrate", "--to", example);
  if (!IsEtcdAddress(flags.from) &&
      access(SqliteStore::DatabasePath(flags.from).c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("--from=", flags.from, " holds no jobs.db"));
  }
  ASSIGN_OR_RETURN(OfflineStore from, OpenOffline(flags.from, flags));
  ASSIGN_OR_RETURN(OfflineStore to, OpenOffline(flags.to, flags));
  if (to.etcd_store != nullptr) {
    ASSIGN_OR_RETURN(const StoreContents there, to.store->Load());
    // What a copy that broke off has left.
    if (there.jobs.empty() && there.workers.empty()) RETURN_IF_ERROR(to.etcd_store->Clear());
  }
  ASSIGN_OR_RETURN(const CopyCounts counts, CopyStore(*from.store, *to.store));
  return absl::StrCat("copied ", counts.jobs, " jobs (", counts.events, " events, ",
                      counts.log_lines, " log lines, ", counts.steps, " steps) and ",
                      counts.workers, " workers; ", flags.from, " is as it was");
}

}  // namespace

bool IsStoreVerb(const std::string& verb) {
  return verb == "backup" || verb == "restore" || verb == "migrate";
}

absl::StatusOr<std::string> RunStoreVerb(const std::string& verb, const StoreVerbFlags& flags) {
  if (verb == "migrate") return Migrate(flags);
  const std::string& directory = flags.options.state_dir;
  if (directory.empty()) return Missing(verb, "--state-dir", "DIRECTORY");
  if (verb == "backup") {
    if (flags.to.empty()) return Missing(verb, "--to", "FILE");
    RETURN_IF_ERROR(BackUpStore(directory, flags.to));
    return absl::StrCat("backed up to ", flags.to, ", checksum in ", flags.to, ".sha256");
  }
  if (flags.from.empty()) return Missing(verb, "--from", "FILE");
  RETURN_IF_ERROR(RestoreStore(flags.from, directory));
  return absl::StrCat("restored ", flags.from, " into ", directory);
}

}  // namespace fsdp::coordinator

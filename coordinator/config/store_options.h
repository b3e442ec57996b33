#ifndef FSDPCTL_COORDINATOR_CONFIG_STORE_OPTIONS_H_
#define FSDPCTL_COORDINATOR_CONFIG_STORE_OPTIONS_H_

// Where jobs are kept, and who of several coordinators leads.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/config/options.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp::coordinator {

struct StoreOptions {
  // "sqlite": in Options::state_dir, which is for it alone. Or "etcd://HOST:PORT,.../PREFIX":
  // there, and of several coordinators with the same address one leads.
  std::string store = "sqlite";
  // HOST:PORT that others reach this coordinator at, told by those that stand by. Empty:
  // Options::listen, with the host's name for a wildcard.
  std::string advertise;

  // --- With etcd
  TlsFiles tls;
  // How long a leader may be silent before another coordinator takes its place; whole seconds.
  absl::Duration lease = absl::Seconds(3);
  // Of the logs, and as much of the step records, of one job; beyond, the oldest go.
  std::int64_t history_bytes = std::int64_t{8} << 20;
  // How often what was overwritten is given up; zero: etcd does it by itself.
  absl::Duration compaction_period = absl::Minutes(5);
};

// How flags call the files, for messages.
TlsFileNames EtcdTlsNames();

//   INVALID_ARGUMENT     a malformed address or duration, no state directory, or one beside etcd, a
//                        TLS file without another that it needs
//   FAILED_PRECONDITION  members of etcd beyond loopback without TLS or Options::insecure
absl::Status ValidateStoreOptions(const StoreOptions& store, const Options& options);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_CONFIG_STORE_OPTIONS_H_

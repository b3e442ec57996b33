#ifndef FSDPCTL_COORDINATOR_RPC_SERVER_H_
#define FSDPCTL_COORDINATOR_RPC_SERVER_H_

// The whole coordinator as a process part: store, core, ticker, gRPC server with health and
// reflection, metrics endpoint, status page. Used by main() and by tests.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/config/options.h"
#include "coordinator/config/store_options.h"
#include "coordinator/coordinator.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

class Server {
 public:
  // Opens the store, loads it and serves. With a store on etcd it stands by first, and serves once
  // it leads; that it cannot is then told by `on_fatal`. `admission` null: the specification's.
  // `on_fatal` is called when the process cannot go on.
  //   INVALID_ARGUMENT, FAILED_PRECONDITION  as ValidateOptions, ValidateStoreOptions,
  //   AccessControl::Open and
  //                                          SqliteStore::Open
  //   UNAVAILABLE  an address cannot be bound
  //   DATA_LOSS    the store is corrupt
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options,
                                                       std::function<void(absl::Status)> on_fatal,
                                                       const Admission* admission = nullptr,
                                                       Clock* clock = nullptr,
                                                       const StoreOptions& store = {});
  // As Drain.
  virtual ~Server() = default;

  // Health says NOT_SERVING, open streams end with UNAVAILABLE, calls may finish until
  // `options.drain_timeout`, the store is flushed. After a failure of the store calls are answered
  // with it for a second first. Ranks go on. Idempotent.
  virtual void Drain() = 0;

  // SIGHUP: the access file and the queues' file are read again, the audit log opened anew. Any
  // thread.
  virtual void Reload() = 0;

  [[nodiscard]] virtual int port() const = 0;
  // 0: no endpoint.
  [[nodiscard]] virtual int metrics_port() const = 0;
  // 0: no status page, or none yet.
  [[nodiscard]] virtual int web_port() const = 0;
  // Not while it stands by.
  virtual Coordinator& coordinator() = 0;
  virtual Counters& counters() = 0;
};

// 0: not served.
struct ServedPorts {
  int grpc = 0;
  int metrics = 0;
  int web = 0;
};

// {"grpc":7070,"metrics":9464,"web":7080,"pid":123}, written beside and renamed.
absl::Status WritePortFile(const std::string& path, const ServedPorts& ports);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_SERVER_H_

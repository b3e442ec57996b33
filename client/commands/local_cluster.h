#ifndef FSDPCTL_CLIENT_COMMANDS_LOCAL_CLUSTER_H_
#define FSDPCTL_CLIENT_COMMANDS_LOCAL_CLUSTER_H_

// A coordinator and its workers on this machine, on loopback, as children of this process. All of
// it belongs to one thread (see process.h).

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/commands/local_devices.h"
#include "client/commands/process.h"
#include "client/interrupt.h"

namespace fsdp {

struct LocalClusterOptions {
  std::filesystem::path state_dir = ".fsdp";
  // Holds fsdp-coordinator and fsdp-worker.
  std::filesystem::path executable_dir;
  LocalWorkersRequest workers;
  // Forget jobs, logs and spools of earlier runs.
  bool clean = false;
  // For the coordinator to listen and the workers to be connected.
  absl::Duration ready_timeout = absl::Seconds(30);
  // SIGTERM to SIGKILL of each process at the end.
  absl::Duration stop_grace = absl::Seconds(10);
  // A process that dies is started again; more often than this within a minute is a failure.
  int max_restarts_per_minute = 5;
  Interrupt* interrupt = nullptr;
};

struct LocalAddresses {
  std::string server;
  std::string coordinator_metrics;
  // Of the status page; empty: none.
  std::string status_page;
  // Of workers, without repeats.
  std::vector<std::string> worker_metrics;
  LocalWorkers workers;
};

class LocalCluster {
 public:
  // Takes the state directory's lock; the state of an instance that was killed is taken over.
  //   FAILED_PRECONDITION  another instance is alive there (its pid is named), or an executable
  //                        is missing
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Create(LocalClusterOptions options);
  // Stops everything.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Chooses the devices, starts the processes and returns when all workers are connected.
  //   INVALID_ARGUMENT, FAILED_PRECONDITION  as ChooseLocalWorkers
  //   DEADLINE_EXCEEDED  not ready in time
  //   ABORTED            a process keeps dying; the message ends with its last lines
  //   CANCELLED          interrupted
  absl::StatusOr<LocalAddresses> Start();

  // Starts again what has died since the last call, and reaps what the dead left; call it a few
  // times a second.
  //   ABORTED            as Start
  absl::Status Supervise();

  // Workers first, then the coordinator; afterwards nothing of ours runs. Idempotent.
  void Stop();

 private:
  struct Process {
    std::string name;
    std::vector<std::string> command;
    std::optional<Child> child;
    std::vector<absl::Time> starts;
  };

  LocalCluster(LocalClusterOptions options, int lock_fd);
  [[nodiscard]] std::filesystem::path LogPath(const Process& process) const;
  absl::Status StartProcess(Process& process);
  absl::Status CheckProcess(Process& process);
  absl::StatusOr<LocalDevices> FindDevices(absl::Time deadline);
  // The coordinator's ports, by what is served there.
  using Ports = std::map<std::string, int>;
  absl::StatusOr<Ports> WaitForPorts(absl::Time deadline);
  absl::StatusOr<LocalAddresses> WaitForWorkers(const std::string& server, absl::Time deadline);
  [[nodiscard]] std::string LastLines(const Process& process) const;
  // True when interrupted.
  [[nodiscard]] bool Pause() const;

  const LocalClusterOptions options_;
  int lock_fd_;
  Process coordinator_;
  Process workers_;
  LocalWorkers chosen_;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_LOCAL_CLUSTER_H_

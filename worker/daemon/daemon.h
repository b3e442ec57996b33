#ifndef FSDPCTL_WORKER_DAEMON_DAEMON_H_
#define FSDPCTL_WORKER_DAEMON_DAEMON_H_

// The worker daemon of one device: spool, supervisor and agent around one core thread.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "worker/daemon/agent.h"
#include "worker/daemon/daemon_link.pb.h"
#include "worker/daemon/inventory.h"
#include "worker/daemon/job_network.h"
#include "worker/daemon/rank_metrics.h"
#include "worker/daemon/spool.h"
#include "worker/daemon/supervisor.h"

namespace fsdp::daemon {

class Daemon {
 public:
  struct Options {
    // The worker's id: 1-63 of [a-zA-Z0-9._-]. State lives in state_dir/name.
    std::string name;
    std::string state_dir;
    fsdp::v1::DeviceInfo device;
    // Executable that runs ranks.
    std::string trainer;
    // For the hello: where Prometheus finds this worker, HOST:PORT.
    std::string metrics_address;
    // Where ranks bind, and what peers are told.
    JobNetwork network;
    // Folders that a job's paths must lie in, with symbolic links resolved; empty: anywhere.
    std::vector<std::string> allowed_paths;
    // No check for foreign memory on the device, and trainers are told that they may have company
    // there.
    bool share_device = false;
    // SIGTERM to this process: how long the spool may take to drain at the end.
    absl::Duration flush_timeout = absl::Seconds(5);
    // How long the start waits for a killed trainer of the daemon's previous life. It is gone
    // within milliseconds, unless the kernel holds it (a GPU's memory being freed).
    absl::Duration leftover_wait = absl::Seconds(5);
    // How often one that is still there, which makes the worker unplaceable, is looked at again.
    absl::Duration leftover_poll = absl::Seconds(2);
    // How often an idle device is looked at.
    absl::Duration device_poll = absl::Seconds(5);
    // How often its health is read.
    absl::Duration health_poll = absl::Seconds(1);
    Agent::Options agent;
    // Address of ranks, cache directory and share_device are filled in.
    Supervisor::Options supervisor;
    // Directory and first number are filled in.
    Spool::Options spool;
    RankMetrics::Options metrics;
  };

  // Opens the state directory, ends what a previous life left running, and reports it.
  //   INVALID_ARGUMENT  bad name, a folder of `allowed_paths` that is not absolute
  //   others            as Spool::Open
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(Options options,
                                                        std::unique_ptr<Nvml> nvml);
  ~Daemon();

  // Runs until RequestStop has taken effect; the calling thread is the core thread.
  //   ABORTED  a newer incarnation of this worker took over
  absl::Status Run();

  // Ends Run: the rank is stopped with a checkpoint, the spool flushed, goodbye said. A second call
  // kills the rank. Any thread; not from a signal handler.
  void RequestStop(const std::string& reason);

  // For a scrape. Any thread.
  [[nodiscard]] DeviceSnapshot Snapshot() const;

  [[nodiscard]] const std::string& incarnation() const;

 private:
  class Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A worker's id: 1-63 of [a-zA-Z0-9._-], starting with a letter or digit.
absl::Status ValidateWorkerName(const std::string& name);

// 16 hex digits from the system's random source.
std::string MakeIncarnation();

// The environment of a trainer: what it needs of ours (paths, locale, sanitizer options and the
// allowed names), then the job's, as far as the names are allowed, then the network's for what
// neither of them sets, then CUDA_VISIBLE_DEVICES for a CUDA device. Allowed: NCCL_*, GLOO_*,
// OMP_*, OPENBLAS_*, DNNL_*, FSDP_*, CUDA_LAUNCH_BLOCKING.
std::map<std::string, std::string> TrainerEnvironment(char** ours, const fsdp::v1::TrainingJob& job,
                                                      const fsdp::v1::DeviceInfo& device,
                                                      const JobNetwork& network);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_DAEMON_H_

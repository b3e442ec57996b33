#ifndef FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_
#define FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_

// Everything that can be set, in one place. main() fills it from flags; nothing below reads flags.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/support/tls_files.h"

namespace fsdp::coordinator {

// When is a worker, an epoch or a rank given up.
struct TimingOptions {
  // Sent to workers in the welcome.
  absl::Duration heartbeat_period = absl::Seconds(1);
  // Silent for this long: SUSPECT.
  absl::Duration suspect_after = absl::Seconds(5);
  // Silent for this long: LOST.
  absl::Duration lost_after = absl::Seconds(10);
  // A closed stream that is not back by then: LOST.
  absl::Duration stream_grace = absl::Seconds(1);
  // After a start of the coordinator: how long workers of live epochs may take to come back.
  absl::Duration adoption_grace = absl::Seconds(20);
  // Lost workers still count as capacity of the cluster for this long, so that a restarting host
  // does not lose its job's place in the queue.
  absl::Duration capacity_memory = absl::Minutes(2);
  // LOST for this long: forgotten, neither listed nor stored. Infinite: never. Cordoned workers are
  // kept, or their return would undo the drain, and so are members of an epoch that is not over.
  absl::Duration forget_lost_after = absl::Hours(1);
  // Beyond the grace period: a rank that was told to stop is killed.
  absl::Duration stop_margin = absl::Seconds(5);
  // An idle heartbeat this long after a stop counts as the rank's exit.
  absl::Duration idle_release_after = absl::Seconds(2);
  // How often deadlines are looked at.
  absl::Duration tick_period = absl::Milliseconds(100);
  // A changed progress is shown to watchers and written to disk at most this often.
  absl::Duration progress_publish_period = absl::Milliseconds(200);
  absl::Duration progress_store_period = absl::Seconds(2);
};

// A collective that does not end (limits.hang_timeout_seconds replaces `abort_floor` in a job).
struct HangOptions {
  absl::Duration diagnose_floor = absl::Seconds(5);
  double diagnose_collectives = 10;
  absl::Duration abort_floor = absl::Seconds(30);
  double abort_steps = 5;
  // Limits grow by this while a rank checkpoints, evaluates or warms up.
  double slow_phase_factor = 10;
  // The first steps of an epoch are warm-up.
  std::int64_t warmup_steps = 2;
};

struct QueueOptions {
  // Jobs that are not finished. Beyond: RESOURCE_EXHAUSTED.
  std::int64_t max_unfinished_jobs = 100'000;
};

struct Options {
  // Host and port; port 0 takes a free one.
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen = "127.0.0.1:9464";
  std::string state_dir;
  // Empty: none is written.
  std::string port_file;
  // Allows addresses that other machines reach although nothing is encrypted.
  bool insecure = false;
  // Server certificate and key; `ca` signs the clients that are let in.
  TlsFiles tls;
  bool reflection = true;
  // SIGTERM: open calls may take this long.
  absl::Duration drain_timeout = absl::Seconds(5);
  TimingOptions timing;
  HangOptions hang;
  QueueOptions queue;
};

//   INVALID_ARGUMENT     a malformed address or duration, no state directory
//   FAILED_PRECONDITION  an address beyond loopback without `insecure`
//   UNIMPLEMENTED        `tls` is set: not in this release
absl::Status ValidateOptions(const Options& options);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_

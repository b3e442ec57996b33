#ifndef FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_
#define FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_

// Everything that can be set, in one place. main() fills it from flags; nothing below reads flags.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/security/call_limiter.h"
#include "proto/support/tls/tls_files.h"
#include "proto/support/tls/tls_reloader.h"

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
  // An elastic job that is to be placed waits this long for its full size, then takes fewer ranks.
  absl::Duration shrink_after = absl::Seconds(10);
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

// A rank that keeps the others waiting, in a job that holds spares and saves checkpoints.
struct StragglerOptions {
  // Its worker is replaced by a spare when its score (RankStatus.straggler_score) stays below this;
  // 0: never.
  double exclude_below = 0.5;
  // And when a step of its own takes at least this much longer than the fastest rank's: what
  // replacing it costs is never won back on less.
  absl::Duration least_loss = absl::Milliseconds(100);
};

struct QueueOptions {
  // Jobs that are not finished. Beyond: RESOURCE_EXHAUSTED.
  std::int64_t max_unfinished_jobs = 100'000;
  // File of the queues; empty: none are configured.
  std::string file;
  // How often it is looked at.
  absl::Duration poll_period = absl::Seconds(1);
  // A job that has waited for so long goes before others of its kind, whatever its queue's share.
  absl::Duration aging = absl::Minutes(30);
};

struct Options {
  // Host and port; port 0 takes a free one.
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen = "127.0.0.1:9464";
  // The status page, by `tls` where that is set. Empty: none.
  std::string web_listen;
  std::string state_dir;
  // Empty: none is written.
  std::string port_file;
  // Allows addresses that other machines reach although nothing is encrypted there.
  bool insecure = false;
  // Server certificate and key; `ca` signs the clients that are let in. Empty: in the clear.
  TlsFiles tls;
  // A client without a certificate does not get past the handshake.
  bool require_client_certificate = false;
  // The same of the Prometheus endpoint; with `ca` only scrapers that it signed are answered.
  TlsFiles metrics_tls;
  // Folder of the authority (`fsdpctl ca init`) that workers are enrolled with; empty: none are.
  // Its certificate is trusted for clients beside `tls.ca`, or as it where that is empty.
  std::string enroll_ca;
  // Of a certificate that enrolment gives.
  absl::Duration enroll_validity = absl::Hours(24 * 30);
  // How often replaced files are looked for.
  absl::Duration tls_reload_period = kTlsReloadPeriod;
  // Where nobody has to say who they are (`access_file` is empty).
  bool reflection = true;
  // Who may do what (proto/support/access_file.h); empty: everybody everything.
  std::string access_file;
  // File that calls are recorded in (coordinator/security/audit_log.h); empty: none.
  std::string audit_log;
  // Folders that a job's paths must lie in; empty: anywhere.
  std::vector<std::string> allowed_paths;
  // Nothing that an operator might have forgotten: see ValidateOptions.
  bool hardened = false;
  LimitOptions limits;
  // A connection without a call is closed after this.
  absl::Duration max_connection_idle = absl::Minutes(5);
  // A connection must have become HTTP/2 (and TLS) within this.
  absl::Duration handshake_timeout = absl::Seconds(20);
  // SIGTERM: open calls may take this long.
  absl::Duration drain_timeout = absl::Seconds(5);
  TimingOptions timing;
  HangOptions hang;
  StragglerOptions straggler;
  QueueOptions queue;
};

// How flags call the files, for messages.
TlsFileNames ServerTlsNames();
TlsFileNames MetricsTlsNames();

//   INVALID_ARGUMENT     a malformed address or duration, no state directory, a TLS file without
//                        another that it needs
//   FAILED_PRECONDITION  an address beyond loopback without `insecure`; `hardened` without TLS, an
//                        access file or an audit log, or with `insecure`
absl::Status ValidateOptions(const Options& options);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_CONFIG_OPTIONS_H_

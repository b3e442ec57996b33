#ifndef FSDPCTL_WORKER_DAEMON_SUPERVISOR_H_
#define FSDPCTL_WORKER_DAEMON_SUPERVISOR_H_

// The life of this device's rank: decides what commands, trainer events and time mean, and tells it
// as reports. Flow steps 4, 5 and 14.
//
//   idle -> STARTING (process exists) -> JOINED -> RUNNING -> STOPPING -> idle
//
// Fencing: a command for an older epoch of a job than one seen before has no effect. A newer
// StartRank kills what still runs and starts once that process is gone, never earlier: two trainers
// never share the device.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "worker/daemon/pulse_board.h"
#include "worker/daemon/rank_metrics.h"
#include "worker/daemon/trainer_process.h"

namespace fsdp::daemon {

// All calls from one thread, the daemon's core, which must outlive every trainer.
class Supervisor {
 public:
  struct Options {
    // SIGTERM to SIGKILL, where neither the command nor the job says.
    absl::Duration default_grace = absl::Seconds(60);
    // How long a rank goes on without a coordinator, where the job does not say.
    absl::Duration default_stop_after_disconnect = absl::Seconds(600);
    // A trainer that closed its link and is still there after this long is killed.
    absl::Duration link_closed_grace = absl::Seconds(10);
    // Log lines wait at most this long for company; tick granularity comes on top.
    absl::Duration log_delay = absl::Milliseconds(100);
    // A batch of log lines is closed at this size.
    std::int64_t log_batch_bytes = std::int64_t{256} << 10;
    // What a coordinator takes in one message; larger reports are cut down.
    std::size_t max_report_bytes = std::size_t{3} << 20;
    // Last lines of stderr kept as the root cause, and what is kept of each.
    int num_last_lines = 20;
    std::size_t last_line_bytes = 1024;
    // Threads of a rank; 0: the machine's divided by its ranks.
    int cpu_threads = 0;
    // For TrainerStart.
    std::string bind_address;
    std::string cache_dir;
    bool share_device = false;
    // Where trainers write recordings.
    std::string profile_dir;
  };

  // What it acts through; all are called from the core thread.
  struct Effects {
    // Stores a report and returns its number (Spool::Append).
    std::function<std::int64_t(fsdp::v1::Report)> report;
    // Sends if the stream is open, drops otherwise.
    std::function<void(fsdp::v1::ConnectRequest)> send;
    // Starts a trainer for the assignment.
    std::function<absl::StatusOr<std::unique_ptr<Trainer>>(const fsdp::v1::StartRank&)> launch;
    // A trainer for this rank exists (its pid is set), or none does any more: for the marker on
    // disk.
    std::function<void(const std::optional<fsdp::v1::RunningRank>&)> mark;
  };

  struct Stats {
    std::int64_t num_stale_commands = 0;
    // By the value of the label `reason`.
    std::map<std::string, std::int64_t> trainer_exits;
  };

  // `clock`, `pulses` and `metrics` outlive it.
  Supervisor(Options options, Effects effects, Clock& clock, PulseBoard& pulses,
             RankMetrics& metrics);
  // Kills the trainer, if any.
  ~Supervisor();

  // The coordinator's side.
  void OnWelcome(const fsdp::v1::Welcome& welcome);
  void OnCommand(const fsdp::v1::ConnectResponse& command);
  void OnDisconnected();

  // The trainer's side (TrainerObserver, brought to the core thread; pulses go to the PulseBoard).
  void OnTrainerMessage(const fsdp::v1::TrainerToDaemon& message);
  void OnTrainerLine(fsdp::v1::LogStream stream, std::string text, bool continued);
  void OnTrainerLinkClosed(const absl::Status& status);
  void OnTrainerExit(TrainerExit exit);

  // Deadlines and waiting log lines; to be called every 100 ms or so.
  void Tick();

  // The process is to end: stops the rank with a checkpoint and takes no other. A second call kills
  // it.
  void BeginShutdown(const std::string& reason);

  // No trainer exists.
  [[nodiscard]] bool idle() const { return trainer_ == nullptr; }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  struct Rank;

  void Start(const fsdp::v1::StartRank& start);
  void Launch(const fsdp::v1::StartRank& start);
  void ReportNoLaunch(const fsdp::v1::StartRank& start, const absl::Status& status);
  // `own_reason`: of the worker itself (RankExited.worker_stop_reason).
  void ReportNeverStarted(const fsdp::v1::EpochKey& key, const std::string& reason,
                          const std::string& own_reason);
  void HandleStop(const fsdp::v1::StopRank& stop);
  void Stop(fsdp::v1::StopMode mode, const std::string& reason, absl::Duration grace);
  void HandleDump(const fsdp::v1::DumpDiagnostics& dump);
  void HandleProfile(const fsdp::v1::StartProfile& start);
  void RefuseProfile(const fsdp::v1::StartProfile& start, const std::string& why);
  void HandleProfileUpdate(const fsdp::v1::TrainerProfileUpdate& update);
  void SendProfileUpdates();
  // A trainer that died while it recorded.
  void KeepRecordings(const std::string& why);
  void HandleCommit(const fsdp::v1::CommitEpoch& commit);
  void HandleStale(const fsdp::v1::StaleEpoch& stale);
  // True: `key` is the running rank's; a stale one is counted and logged.
  bool IsCurrent(const fsdp::v1::EpochKey& key, const char* what);
  // True: a newer epoch of the job has been seen.
  bool IsStale(const fsdp::v1::EpochKey& key) const;

  void ToTrainer(const fsdp::v1::DaemonToTrainer& message);
  void HandleHello(const fsdp::v1::TrainerHello& hello);
  void HandleJoined(fsdp::v1::RankJoined joined);
  void HandleStep(const fsdp::v1::StepReport& step);
  void HandleRendezvousPut(fsdp::v1::RendezvousPut put);
  void HandleRendezvousGet(fsdp::v1::RendezvousGet get);
  void ResendPending(std::int64_t acked_sequence);
  // Stores what a trainer said, cut down to what can be sent.
  void ReportForTrainer(fsdp::v1::Report report);
  void Propose(const fsdp::v1::ManifestProposal& proposal);
  void Fail(fsdp::v1::FailureCause cause, const std::string& message);
  void SetState(fsdp::v1::RankState state);

  fsdp::v1::Report NewReport() const;
  void Log(fsdp::v1::LogStream stream, std::string text, bool continued);
  void FlushLogs();
  void CheckDisconnect();
  void RememberEpoch(const fsdp::v1::EpochKey& key);
  [[nodiscard]] absl::Duration GraceOf(const fsdp::v1::TrainingJob& job) const;

  const Options options_;
  const Effects effects_;
  Clock& clock_;
  PulseBoard& pulses_;
  RankMetrics& metrics_;
  Stats stats_;

  std::unique_ptr<Trainer> trainer_;
  // Set while a trainer exists.
  std::unique_ptr<Rank> rank_;
  // To be launched as soon as the present trainer is gone.
  std::optional<fsdp::v1::StartRank> next_start_;
  // Highest epoch seen, by job; the oldest entries are forgotten.
  std::map<std::string, std::int64_t> epochs_;
  std::deque<std::string> epoch_order_;
  // Absent while connected. Before the first connection: since the start.
  std::optional<MonotonicTime> disconnected_since_;
  int num_shutdown_requests_ = 0;
  // Empty until the first one.
  std::string shutdown_reason_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_SUPERVISOR_H_

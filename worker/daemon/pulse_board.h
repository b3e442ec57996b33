#ifndef FSDPCTL_WORKER_DAEMON_PULSE_BOARD_H_
#define FSDPCTL_WORKER_DAEMON_PULSE_BOARD_H_

// Where the rank's last sign of life is put down, so that heartbeats never wait for the daemon's
// core.

#include <cstdint>
#include <mutex>
#include <optional>

#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::daemon {

// Thread-safe; no call waits for I/O.
class PulseBoard {
 public:
  explicit PulseBoard(Clock& clock) : clock_(clock) {}

  // A trainer process exists for `rank` from now on; forgets the one before.
  void Begin(const fsdp::v1::RunningRank& rank);
  void SetState(fsdp::v1::RankState state);
  // Steps only grow.
  void SetStep(std::int64_t step);
  // The trainer's own pulse. Its key and state are replaced by what the daemon knows.
  void SetPulse(const fsdp::v1::RankPulse& pulse);
  // No rank any more.
  void End();

  [[nodiscard]] std::optional<fsdp::v1::RunningRank> running() const;

  // For a heartbeat. A collective that was pending in the last pulse is taken to be pending still:
  // its time grows with the pulse's age, so that a stopped (SIGSTOP) trainer looks as stuck as it
  // is.
  [[nodiscard]] std::optional<fsdp::v1::RankPulse> pulse() const;

 private:
  Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<fsdp::v1::RunningRank> rank_;
  fsdp::v1::RankPulse pulse_;
  MonotonicTime pulse_time_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_PULSE_BOARD_H_

#ifndef FSDPCTL_COORDINATOR_MEMBERSHIP_LIVENESS_H_
#define FSDPCTL_COORDINATOR_MEMBERSHIP_LIVENESS_H_

// Is a worker alive? Unknown is not failed: silence makes it SUSPECT, then LOST; a closed stream
// that is not back soon is positive evidence. Pure.

#include "coordinator/config/options.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

enum class Liveness { kAlive, kSuspect, kLost };

struct LivenessFacts {
  bool connected = false;
  // Last sign of life; when not connected also the earliest moment to count from.
  MonotonicTime heard;
  // When the stream closed; looked at when not connected.
  MonotonicTime disconnected;
  // Not connected since the coordinator started: it has `adoption_grace` to come back.
  bool awaiting_adoption = false;
};

Liveness CheckStale(MonotonicTime now, const LivenessFacts& facts, const TimingOptions& timing);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_MEMBERSHIP_LIVENESS_H_

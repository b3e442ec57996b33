#include "coordinator/membership/liveness.h"

namespace fsdp::coordinator {

Liveness CheckStale(MonotonicTime now, const LivenessFacts& facts, const TimingOptions& timing) {
  if (!facts.connected) {
    const absl::Duration grace =
        facts.awaiting_adoption ? timing.adoption_grace : timing.stream_grace;
    return now - facts.disconnected >= grace ? Liveness::kLost : Liveness::kSuspect;
  }
  const absl::Duration silent = now - facts.heard;
  if (silent >= timing.lost_after) return Liveness::kLost;
  if (silent >= timing.suspect_after) return Liveness::kSuspect;
  return Liveness::kAlive;
}

}  // namespace fsdp::coordinator

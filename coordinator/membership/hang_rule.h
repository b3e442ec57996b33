#ifndef FSDPCTL_COORDINATOR_MEMBERSHIP_HANG_RULE_H_
#define FSDPCTL_COORDINATOR_MEMBERSHIP_HANG_RULE_H_

// Does an epoch hang, and who keeps the others waiting? Pure.
//
// Evidence is the ranks' pulses. A rank that waits in a collective says so, with a growing time.
// The rank that they wait for is the one that has not started that collective; when all have
// started it, the one whose pulse is no longer renewed (its trainer is stopped: the daemon's
// heartbeat goes on and repeats the last pulse).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/config/options.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

struct RankPulseView {
  v1::RankPulse pulse;
  // When the trainer last renewed it.
  MonotonicTime changed;
};

struct HangFacts {
  // By rank; a rank without a pulse yet is absent.
  std::vector<std::optional<RankPulseView>> ranks;
  std::int64_t first_step = 0;
  // When the epoch's step last grew.
  MonotonicTime progressed;
  // limits.hang_timeout_seconds, when given.
  std::optional<absl::Duration> job_limit;
};

enum class HangLevel { kNone, kDiagnose, kAbort };

struct HangVerdict {
  HangLevel level = HangLevel::kNone;
  // Whom the others wait for.
  std::int32_t rank = 0;
  // "all_gather layers.3, sequence 4711"; empty when no collective is pending.
  std::string collective;
  absl::Duration pending;
  absl::Duration limit;
  // One sentence.
  std::string message;
};

HangVerdict CheckHang(MonotonicTime now, const HangFacts& facts, const HangOptions& options);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_MEMBERSHIP_HANG_RULE_H_

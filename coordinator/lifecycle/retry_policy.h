#ifndef FSDPCTL_COORDINATOR_LIFECYCLE_RETRY_POLICY_H_
#define FSDPCTL_COORDINATOR_LIFECYCLE_RETRY_POLICY_H_

// After a failure: again, or not? Pure.

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp::coordinator {

// Whose fault a failure is, and so which budget pays.
enum class FailureClass { kInfrastructure, kUser, kFree };

FailureClass ClassOf(v1::FailureCause cause);

// "Do not start me again", said by a trainer.
inline constexpr int kNeverRestartExitCode = 93;

struct FailureFacts {
  v1::RootCause cause;
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  // A step or checkpoint was reached that no earlier attempt had reached.
  bool progressed = false;
  // Restarts already paid, this failure not included.
  v1::RestartCounts counts;
  // Since the last progress.
  int restarts_since_progress = 0;
};

struct RetryDecision {
  bool restart = false;
  // Counts after the decision.
  v1::RestartCounts counts;
  absl::Duration backoff = absl::ZeroDuration();
  bool exclude_worker = false;
  // What users read: "infrastructure restart 2 of 10 in 1s".
  std::string reason;
};

// Order: exit code 93 never restarts; the first matching rule; then cause and budgets. A failure
// class kFree (drain, user restart, preemption) restarts without paying.
RetryDecision DecideRetry(const v1::FailurePolicy& policy, const FailureFacts& facts);

// True when all that `rule` gives matches. A log_regex is searched in the last lines (RE2; one that
// does not compile never matches).
bool RuleMatches(const v1::FailureRule& rule, const FailureFacts& facts);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_LIFECYCLE_RETRY_POLICY_H_

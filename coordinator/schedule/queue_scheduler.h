#ifndef FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_SCHEDULER_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_SCHEDULER_H_

// Whose turn it is when queues are configured: quotas, fair shares, preemption. Pure and
// deterministic.
//
// In a queue: priority, then submission, as without queues. Between queues, for each type of
// device:
// 1. jobs within their queue's quota go before jobs that would borrow;
// 2. then those that have waited for longer than `aging`, the longest first: whatever ends, nobody
//    waits for ever;
// 3. then the queue that uses the least for its weight;
// 4. then priority, then submission.
// The first that cannot be placed, not even by preemption, holds back all behind it of its type of
// device, so that a large gang is not starved by small ones. Not so a job that only its queue's max
// holds up: that holds back its own queue, and no other.

#include <vector>

#include "absl/time/time.h"
#include "coordinator/schedule/preemption.h"
#include "coordinator/schedule/queue_ledger.h"

namespace fsdp::coordinator {

struct ScheduleState {
  // The jobs that wait or come back.
  std::vector<QueuedDemand> waiting;
  // Those that hold workers and are not in `waiting`.
  std::vector<ActiveJob> running;
  ClusterView view;
};

struct ScheduleOptions {
  absl::Duration aging = absl::Minutes(30);
};

struct Preemption {
  JobId victim;
  JobId by;
  PreemptionReason reason = PreemptionReason::kReclaim;
  // What the victim's user reads.
  std::string why;
};

struct ScheduleResult {
  // One for each waiting job, in the order in which they were looked at.
  std::vector<QueueDecision> decisions;
  std::vector<Preemption> preemptions;
};

ScheduleResult ScheduleQueues(const QueuePolicies& policies, const ScheduleState& state,
                              const ScheduleOptions& options);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_SCHEDULER_H_

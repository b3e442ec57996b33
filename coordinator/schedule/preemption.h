#ifndef FSDPCTL_COORDINATOR_SCHEDULE_PREEMPTION_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_PREEMPTION_H_

// Which running jobs make room for one that waits: as few as are needed, or none when it would not
// help. Pure and deterministic.
//
// Two rights, both of the waiting job's queue:
// - reclaim: a job within its queue's quota takes back what other queues use beyond theirs. What is
//   taken back was borrowed, and its taker does not borrow, so it is not taken back again.
// - priority: a job takes the place of one of its own queue with a lower priority, which cannot do
//   the same to it.

#include <string>
#include <vector>

#include "coordinator/schedule/queue_ledger.h"

namespace fsdp::coordinator {

enum class PreemptionReason { kReclaim, kPriority };

// The metric's label.
const char* LabelOf(PreemptionReason reason);

struct Victim {
  ActiveJob job;
  PreemptionReason reason = PreemptionReason::kReclaim;
};

struct PreemptionPlan {
  // Empty: none, and `obstacle` says why, if there is anything to say.
  std::vector<Victim> victims;
  // Where the job goes once the victims are gone.
  Placement placement;
  std::string obstacle;
};

// `view`: what is held by jobs that are being stopped counts as free.
PreemptionPlan PlanPreemption(const QueuedDemand& item, const QueuePolicies& policies,
                              const QueueLedger& ledger, const std::vector<ActiveJob>& running,
                              const ClusterView& view);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_PREEMPTION_H_

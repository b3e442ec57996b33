#ifndef FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_

// Where a job's ranks go: all of them, or none and a reason with numbers. Pure and deterministic.

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/queue/job_queue.h"
#include "coordinator/schedule/demand.h"
#include "fsdp/v1/job.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

struct WorkerView {
  WorkerId id;
  std::string host;
  v1::DeviceType device = v1::DEVICE_TYPE_CPU;
  int device_index = 0;
  // Connected, not cordoned, device usable. Not placeable and not lost: `why_not` says why.
  bool placeable = false;
  std::string why_not;
  // Could be placeable again soon (busy, suspect, recently lost): counts as capacity.
  bool capacity = true;
  // "jobs/{id}" that holds it; empty: free.
  std::string held_by;
};

struct ClusterView {
  std::vector<WorkerView> workers;
};

// The worker of each rank: ranks of one host are contiguous, hosts in the order of their names
// (numbers in names by value), devices by index.
using Placement = std::vector<WorkerId>;

// What a job waits for.
enum class WaitKind {
  kDevices,
  // The cluster as a whole, or its queue's max, is too small for it.
  kBeyondCapacity,
  kBehindOthers,
  // Its queue holds as much as it may.
  kQuota,
  // Jobs that are being stopped: it is next.
  kYielding,
  // Its queue is not configured.
  kUnknownQueue,
};

struct PlacementDecision {
  // Empty: not now.
  std::optional<Placement> placement;
  // With a placement: held beside it, as far as the demand wants spares and there are free workers.
  std::vector<WorkerId> spares;
  // Why not, in numbers: "needs 4 cpu workers (2 nodes x 2), 3 free; jobs/a holds 2".
  std::string reason;
  // The cluster as a whole is too small, however free it were.
  bool beyond_capacity = false;
  // There would be room, were it its turn.
  bool behind = false;
  // Without a placement.
  WaitKind kind = WaitKind::kDevices;
};

// "insufficient_devices", ...: the metric's label.
const char* LabelOf(WaitKind kind);

PlacementDecision PlaceGang(const Demand& demand, const ClusterView& view);

// Up to `count` workers that are free in `view`, those first that it holds as spares already. Whole
// nodes, unless any node will do.
std::vector<WorkerId> PickSpares(const Demand& demand, const ClusterView& view, int count);

struct QueueDecision {
  JobId job;
  PlacementDecision decision;
};

struct QueuedDemand {
  QueueEntry entry;
  Demand demand;
  // It comes back, but cannot be placed yet: its epoch is still being torn down, or it waits out
  // its backoff. Keeps its place in the queue.
  bool recovering = false;
  // Since it came into the queue.
  absl::Duration waited = absl::ZeroDuration();
};

// What a job gets: of what is free, of the spares that it holds, and if it is recovering of its own
// workers as if they were released.
PlacementDecision PlaceItem(const QueuedDemand& item, const ClusterView& view);

// They are the job's ("jobs/{id}") from now on.
void Hold(ClusterView& view, const std::vector<WorkerId>& workers, const std::string& job);

// `view` with what the job holds free.
ClusterView WithoutHoldings(ClusterView view, const JobId& job);

// Walks the queue in order and places what fits, taking the workers out of the view as it goes. A
// job that has to wait holds back later jobs of the same device type, so that a large gang is not
// starved by small ones; one that the cluster cannot hold at all does not.
// A recovering job is not placed. What it will need is kept from later jobs: its last workers where
// they are free or its own, others in place of those that are not; when these are too few, it holds
// back later jobs as one that waits.
std::vector<QueueDecision> ScheduleQueue(std::vector<QueuedDemand> queue, ClusterView view);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_

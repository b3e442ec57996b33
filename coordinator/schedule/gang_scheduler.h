#ifndef FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_

// Where a job's ranks go: all of them, or none and a reason with numbers. Pure and deterministic.

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/queue/job_queue.h"
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

struct Demand {
  int nodes = 1;
  int devices_per_node = 1;
  v1::DeviceType device = v1::DEVICE_TYPE_CPU;
  bool any_node = false;
  // Never used for this job.
  std::vector<WorkerId> excluded;
  // The workers of its last epoch by rank; used again, in this order, when they are all free.
  std::vector<WorkerId> previous;

  [[nodiscard]] int world_size() const { return nodes * devices_per_node; }
};

Demand DemandOf(const v1::ResourceSpec& resources);

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

// What a recovering job would get if its own workers were released.
PlacementDecision PlaceWithOwn(const QueuedDemand& item, ClusterView view);

// "needs 2 cuda workers".
std::string NeedsText(const Demand& demand);

// Walks the queue in order and places what fits, taking the workers out of the view as it goes. A
// job that has to wait holds back later jobs of the same device type, so that a large gang is not
// starved by small ones; one that the cluster cannot hold at all does not.
// A recovering job is not placed. What it will need is kept from later jobs: its last workers where
// they are free or its own, others in place of those that are not; when these are too few, it holds
// back later jobs as one that waits.
std::vector<QueueDecision> ScheduleQueue(std::vector<QueuedDemand> queue, ClusterView view);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_GANG_SCHEDULER_H_

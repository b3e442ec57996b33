#ifndef FSDPCTL_COORDINATOR_SCHEDULE_DEMAND_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_DEMAND_H_

// What a job asks the cluster for.

#include <limits>
#include <string>
#include <vector>

#include "fsdp/v1/job.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

struct Demand {
  int nodes = 1;
  int devices_per_node = 1;
  v1::DeviceType device = v1::DEVICE_TYPE_CPU;
  bool any_node = false;
  // Of an elastic job: the world sizes that it may have, ascending. world_size() is then the least
  // that it takes now, and it gets the largest that there is room for. Empty: world_size() alone.
  std::vector<int> sizes;
  // The size that the spec names: ranks beyond it leave room for the spares first.
  int full_size = 1;
  // Workers to hold beyond its ranks, as far as there are free ones.
  int spares = 0;
  // Of ranks and spares together.
  int at_most = std::numeric_limits<int>::max();
  // Never used for this job.
  std::vector<WorkerId> excluded;
  // The workers of its last epoch by rank; used again, in this order, when they are all free.
  std::vector<WorkerId> previous;
  // Those that it holds as spares.
  std::vector<WorkerId> held_spares;

  [[nodiscard]] int world_size() const { return nodes * devices_per_node; }
  // The least that it takes is now `ranks`: one of `sizes`.
  void Accept(int ranks);
};

// Of a spec that is valid; takes no fewer ranks than the spec names.
Demand DemandOf(const v1::TrainingJob& job);

// The same, content with as few ranks as the spec allows.
Demand LeastDemandOf(const v1::TrainingJob& job);

// Of any spec.
v1::DeviceType DeviceOf(const v1::ResourceSpec& resources);

// "needs 2 cuda workers".
std::string NeedsText(const Demand& demand);

// "cuda".
const char* DeviceWord(v1::DeviceType device);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_DEMAND_H_

#ifndef FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_
#define FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_

// What the coordinator's Prometheus endpoint shows: one collectable that reads the coordinator at
// each scrape, so that a series ends with what it describes.

#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/rpc/transport.h"
#include "prometheus/collectable.h"

namespace fsdp::coordinator {

class CoordinatorCollectable : public prometheus::Collectable {
 public:
  // All outlive the collectable.
  CoordinatorCollectable(const Coordinator& coordinator, const Counters& counters,
                         const Transport& transport)
      : coordinator_(coordinator), counters_(counters), transport_(transport) {}
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Coordinator& coordinator_;
  const Counters& counters_;
  const Transport& transport_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_

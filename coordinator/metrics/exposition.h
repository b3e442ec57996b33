#ifndef FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_
#define FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_

// The coordinator's Prometheus endpoint: one collectable that reads the coordinator at each scrape,
// so that a series ends with what it describes.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "prometheus/collectable.h"

namespace prometheus {
class Exposer;
}

namespace fsdp::coordinator {

class CoordinatorCollectable : public prometheus::Collectable {
 public:
  // Both outlive the collectable.
  CoordinatorCollectable(const Coordinator& coordinator, const Counters& counters)
      : coordinator_(coordinator), counters_(counters) {}
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Coordinator& coordinator_;
  const Counters& counters_;
};

class MetricsEndpoint {
 public:
  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& address, std::shared_ptr<prometheus::Collectable> collectable);
  ~MetricsEndpoint();
  [[nodiscard]] int port() const { return port_; }

 private:
  MetricsEndpoint();
  std::shared_ptr<prometheus::Collectable> collectable_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_METRICS_EXPOSITION_H_

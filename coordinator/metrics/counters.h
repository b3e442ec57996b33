#ifndef FSDPCTL_COORDINATOR_METRICS_COUNTERS_H_
#define FSDPCTL_COORDINATOR_METRICS_COUNTERS_H_

// What the coordinator counts and times as it goes, under the names of the metric table.
// Thread-safe; nobody waits long.

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "proto/support/metric_family.h"

namespace fsdp::coordinator {

class Counters {
 public:
  // At most two label values, in the table's order; "" stands for no label.
  void Add(std::string_view name, std::string_view label = "", std::string_view label2 = "",
           double amount = 1);
  void Observe(std::string_view name, absl::Duration value, std::string_view label = "");

  // The value so far, for tests.
  [[nodiscard]] double Value(std::string_view name, std::string_view label = "",
                             std::string_view label2 = "") const;
  void AddTo(MetricFamilies* families) const;

 private:
  using Key = std::pair<std::string, std::array<std::string, 2>>;

  mutable std::mutex mutex_;
  std::map<Key, double> counters_;
  std::map<Key, std::unique_ptr<MetricHistogram>> histograms_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_METRICS_COUNTERS_H_

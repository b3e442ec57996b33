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

  // Makes the series stand at 0 before anything is counted, so that rates have a beginning and
  // alerts a value.
  void Declare(std::string_view name, std::string_view label = "", std::string_view label2 = "");

  // The value so far, for tests.
  [[nodiscard]] double Value(std::string_view name, std::string_view label = "",
                             std::string_view label2 = "") const;
  void AddTo(MetricFamilies* families) const;

 private:
  MetricHistogram& HistogramLocked(std::string_view name, std::string_view label);

  using Key = std::pair<std::string, std::array<std::string, 2>>;

  mutable std::mutex mutex_;
  std::map<Key, double> counters_;
  std::map<Key, std::unique_ptr<MetricHistogram>> histograms_;
};

// Declares every series of the coordinator's counters whose labels are known beforehand. Of
// fsdp_rpc_total that is code OK of each method, of histograms those without labels: the others
// would be some hundred series that most coordinators never use.
void DeclareCounters(Counters& counters);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_METRICS_COUNTERS_H_

#include "worker/profile/counters/metric_sets.h"

#include <algorithm>
#include <array>

namespace fsdp {
namespace {

// The "Triage" names exist on Hopper only. sm__throughput without that prefix needs 19 passes.
constexpr std::array kHopperMetrics = {
    CounterMetric{CounterRole::kSmThroughput,
                  "TriageCompute.sm__throughput.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kHbmThroughput,
                  "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kTensorActive,
                  "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kSmActive, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kInstructions,
                  "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kSmClock, "gpc__cycles_elapsed.avg.per_second"},
};

constexpr std::array kPortableMetrics = {
    CounterMetric{CounterRole::kHbmThroughput,
                  "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kTensorActive,
                  "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kSmActive, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kInstructions,
                  "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed"},
    CounterMetric{CounterRole::kSmClock, "gpc__cycles_elapsed.avg.per_second"},
};

constexpr std::array kHopperChips = {"GH100"};

constexpr std::array<MetricSet, 2> kSets = {
    MetricSet{"hopper", kHopperChips, kHopperMetrics},
    MetricSet{"portable", {}, kPortableMetrics},
};

}  // namespace

std::span<const MetricSet> ShippedMetricSets() { return kSets; }

const MetricSet& MetricSetFor(std::string_view chip) {
  for (const MetricSet& set : kSets) {
    if (std::any_of(set.chips.begin(), set.chips.end(),
                    [chip](const char* name) { return chip == name; })) {
      return set;
    }
  }
  return kSets.back();
}

}  // namespace fsdp

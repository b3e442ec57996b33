#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_METRIC_SETS_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_METRIC_SETS_H_

// Which hardware counters PM sampling reads, by chip. Every set must fit into one pass: PM sampling
// replays nothing. one_pass_test.cc asks CUPTI about each of them, without a GPU.
//
// Pure; thread-safe.

#include <cstdint>
#include <span>
#include <string_view>

namespace fsdp {

enum class CounterRole : std::uint8_t {
  // Busiest of the multiprocessors' pipes. Leaves out the units that move data within the
  // multiprocessor (load/store, TMA), so it reads lower than ncu's "SM %" for kernels bound by
  // those.
  kSmThroughput,
  kHbmThroughput,
  kTensorActive,
  // Cycles in which a multiprocessor holds any warp at all: near 1 for a pure copy too.
  kSmActive,
  kInstructions,
  // Hertz, where the others are percent of the peak at the clock of the moment.
  kSmClock,
};

struct CounterMetric {
  CounterRole role;
  const char* name;  // as CUPTI spells it
};

struct MetricSet {
  const char* name;
  // As cuptiDeviceGetChipName spells them; empty: any chip that no other set names.
  std::span<const char* const> chips;
  std::span<const CounterMetric> metrics;
};

// The sets that are shipped.
std::span<const MetricSet> ShippedMetricSets();

// The one for `chip`: its own, or the portable one, which has no kSmThroughput: the larger of
// kInstructions and kTensorActive stands for it and is at most as large.
const MetricSet& MetricSetFor(std::string_view chip);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_METRIC_SETS_H_

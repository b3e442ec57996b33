#include "worker/profile/counters/counter_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/time.h"

namespace fsdp {

void CounterProfile::SetOrder(std::vector<StreamOrder> order) {
  const std::lock_guard<std::mutex> lock(mutex_);
  order_ = std::move(order);
}

CounterWindows::Use CounterProfile::Read(const CounterReading& reading) {
  const MonotonicTime begin = clock_.Now();
  std::map<std::uint32_t, std::vector<KernelRecord>> streams;
  for (const KernelRecord& record : reading.kernels) streams[record.stream].push_back(record);

  const std::lock_guard<std::mutex> lock(mutex_);
  CounterWindows::Use use;
  std::vector<KernelInterval> kernels;
  kernels.reserve(reading.kernels.size());
  for (const auto& [stream, records] : streams) {
    std::span<const ExpectedRun> step;
    for (const StreamOrder& order : order_) {
      if (order.stream == stream) step = order.step;
    }
    const LaunchMatch match = MatchLaunches(records, step);
    if (match.unmatched > 0) use.dropped["unassigned"] += match.unmatched;
    for (std::size_t i = 0; i < records.size(); ++i) {
      kernels.push_back({records[i].begin_ns, records[i].end_ns, match.families[i]});
    }
  }
  SampledWindow window{reading.begin_ns, reading.begin_ns, kernels, reading.samples};
  if (const auto compute = order_.empty() ? streams.end() : streams.find(order_.front().stream);
      compute != streams.end()) {
    window.begin_ns = std::max(reading.begin_ns, compute->second.front().begin_ns);
    window.end_ns = std::min(reading.end_ns, compute->second.back().end_ns);
  }
  const SampleAttribution::Counts before = attribution_.counts();
  attribution_.Add(window);
  const SampleAttribution::Counts& after = attribution_.counts();
  use.samples = after.used - before.used;
  if (after.edge > before.edge) use.dropped["edge"] += after.edge - before.edge;
  if (after.invalid > before.invalid) use.dropped["invalid"] += after.invalid - before.invalid;
  use.seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
  return use;
}

FamilyCounterTable CounterProfile::Table() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return attribution_.Solve();
}

}  // namespace fsdp

#include "worker/train/stage_graphs.h"

#include <utility>

#include "proto/support/status.h"
#include "worker/profile/counters/launch_counter.h"

namespace fsdp {

absl::Status StageGraphs::RunKnown(const Key& key, const DeviceGraph::Issue& issue) {
  const auto [found, is_new] = entries_.try_emplace(key);
  Entry& entry = found->second;
  const bool as_it_is = is_new || (entry.graph == nullptr && num_graphs_ >= kMaxGraphs);
  if (keeps_order_) order_.push_back(as_it_is ? nullptr : &entry);
  if (as_it_is) return issue();
  if (entry.graph == nullptr) {
    RETURN_IF_ERROR(Capture(entry, issue));
  } else {
    recorder_.AddTable(entry.work);
  }
  return device_.Launch(*entry.graph, device_.compute());
}

absl::Status StageGraphs::Capture(Entry& entry, const DeviceGraph::Issue& issue) {
  const FamilyTable before = recorder_.totals();
  LaunchCounter counter(device_, device_.compute());
  LaunchTimer* const timer = recorder_.timer();
  recorder_.set_timer(&counter);
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph =
      device_.Capture(device_.compute(), [&]() -> absl::Status {
        RETURN_IF_ERROR(issue());
        counter.Finish();
        return absl::OkStatus();
      });
  recorder_.set_timer(timer);
  ASSIGN_OR_RETURN(entry.graph, std::move(graph));
  entry.work = Difference(recorder_.totals(), before);
  entry.launches = {.is_graph = true, .launches = counter.Take()};
  ++num_graphs_;
  return absl::OkStatus();
}

void StageGraphs::BeginOrder() {
  order_.clear();
  keeps_order_ = true;
}

std::vector<ExpectedRun> StageGraphs::EndOrder() {
  keeps_order_ = false;
  std::vector<ExpectedRun> runs;
  runs.reserve(order_.size());
  for (const Entry* const entry : order_) {
    runs.push_back(entry != nullptr ? entry->launches : ExpectedRun{false, {ExpectedLaunch()}});
  }
  order_.clear();
  return runs;
}

}  // namespace fsdp

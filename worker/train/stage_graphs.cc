#include "worker/train/stage_graphs.h"

#include "proto/support/status.h"

namespace fsdp {

absl::Status StageGraphs::RunKnown(const Key& key, const DeviceGraph::Issue& issue) {
  const auto [found, is_new] = entries_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new || (entry.graph == nullptr && num_graphs_ >= kMaxGraphs)) return issue();
  if (entry.graph == nullptr) {
    const FamilyTable before = recorder_.totals();
    ASSIGN_OR_RETURN(entry.graph, device_.Capture(device_.compute(), issue));
    entry.work = Difference(recorder_.totals(), before);
    ++num_graphs_;
  } else {
    recorder_.AddTable(entry.work);
  }
  return device_.Launch(*entry.graph, device_.compute());
}

}  // namespace fsdp

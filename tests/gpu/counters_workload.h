#ifndef FSDPCTL_TESTS_GPU_COUNTERS_WORKLOAD_H_
#define FSDPCTL_TESTS_GPU_COUNTERS_WORKLOAD_H_

// Kernels whose bounds are known, as a step of graphs that the engine's own StageGraphs keeps: a
// copy, a norm, an AdamW update, a large matmul, attention, and kernels of about 2 us.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/gpu/bench_support.h"
#include "worker/device/device.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/train/stage_graphs.h"

namespace fsdp::bench {

// What a verdict about a part of the workload must be.
enum class KnownBound : std::uint8_t {
  kMemory,
  // Held by memory, though its multiprocessors are busy enough for the strict label not to apply:
  // balanced, and nearer to the roof of memory.
  kNearMemory,
  kCompute,
  kLatency,
  kAny
};

struct WorkloadPart {
  std::string name;
  KernelFamily family = KernelFamily::kCopy;
  KnownBound bound = KnownBound::kAny;
  int launches = 1;  // a step; each part has another number, so that graphs are told apart
  std::function<absl::Status()> run;
};

class CountersWorkload {
 public:
  explicit CountersWorkload(Device& device);

  [[nodiscard]] const std::vector<WorkloadPart>& parts() const { return parts_; }
  // Issues one step: as it is the first time, captured the second, launched from then on.
  absl::Status Step();
  // One launch of each part, without graphs: for a tool that serialises kernels.
  absl::Status Once();
  // Of the last Step.
  [[nodiscard]] const std::vector<ExpectedRun>& order() const { return order_; }

 private:
  void AddMemoryBound();
  void AddTensorBound();

  Device& device_;
  Arena arena_;
  FamilyRecorder recorder_{false};
  StageGraphs graphs_;
  std::vector<WorkloadPart> parts_;
  std::vector<ExpectedRun> order_;
};

}  // namespace fsdp::bench

#endif  // FSDPCTL_TESTS_GPU_COUNTERS_WORKLOAD_H_

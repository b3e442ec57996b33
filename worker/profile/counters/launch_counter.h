#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_COUNTER_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_COUNTER_H_

// Counts the kernels of each launch while a graph is captured: the family is known where a launch
// is made, the number of its kernels only to the device (a matmul may be one or three).
//
// Thread rule: the step thread, within the issue of a Device::Capture, as a FamilyRecorder's timer.

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

class LaunchCounter final : public LaunchTimer {
 public:
  LaunchCounter(Device& device, Stream& stream) : device_(device), stream_(stream) {}

  absl::Status Begin() override {
    Count(std::nullopt);
    return absl::OkStatus();
  }
  absl::Status End(const LaunchWork& work) override {
    Count(work.family);
    return absl::OkStatus();
  }
  // Once, when all is issued: what follows the last launch.
  void Finish() { Count(std::nullopt); }

  // In order of issue; kernels between launches are a launch without a family. A device that could
  // not count gives one launch of unknown size: it costs the records, not the step.
  [[nodiscard]] std::vector<ExpectedLaunch> Take();

 private:
  // Credits what was added since the last count.
  void Count(std::optional<KernelFamily> family);

  Device& device_;
  Stream& stream_;
  bool is_known_ = true;
  int num_counted_ = 0;
  std::vector<ExpectedLaunch> launches_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_COUNTER_H_

#include "worker/profile/counters/launch_counter.h"

namespace fsdp {

void LaunchCounter::Count(std::optional<KernelFamily> family) {
  const absl::StatusOr<int> num_kernels = device_.CapturedKernels(stream_);
  if (!num_kernels.ok()) {
    is_known_ = false;
    return;
  }
  if (*num_kernels == num_counted_) return;
  launches_.push_back({family, *num_kernels - std::exchange(num_counted_, *num_kernels)});
}

std::vector<ExpectedLaunch> LaunchCounter::Take() {
  if (!is_known_) return {ExpectedLaunch()};
  return std::exchange(launches_, {});
}

}  // namespace fsdp

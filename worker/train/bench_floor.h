#ifndef FSDPCTL_WORKER_TRAIN_BENCH_FLOOR_H_
#define FSDPCTL_WORKER_TRAIN_BENCH_FLOOR_H_

// What a step cannot go below on this device with these kernels: its matmuls replayed alone, its
// attention alone, and the bytes of everything else at the rate of a copy, all measured in the same
// process.

#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/profile/family_recorder.h"
#include "worker/train/engine.h"

namespace fsdp {

struct StepFloor {
  double matmul_seconds = 0;     // the step's own sequence, for a second or more
  double attention_seconds = 0;  // forward and backward of every layer
  double copy_bytes_per_second = 0;
  double bytes = 0;  // 28 a parameter for the optimizer, and those of the elementwise launches

  [[nodiscard]] double Seconds() const {
    return matmul_seconds + attention_seconds +
           (copy_bytes_per_second > 0 ? bytes / copy_bytes_per_second : 0);
  }
};

// `step` is what one step launches. World size 1; spoils the engine's activations.
//   RESOURCE_EXHAUSTED  no room for the copy beside the engine's arena
absl::StatusOr<StepFloor> MeasureFloor(Engine& engine, Device& device, const FamilyTable& step);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_BENCH_FLOOR_H_

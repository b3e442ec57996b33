#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_CEILINGS_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_CEILINGS_H_

// What a CPU device reaches at best, measured when the trainer starts: the roofs under which the
// analytic verdicts (compute-bound, memory-bound) place each kernel family.

#include "absl/status/statusor.h"
#include "worker/device/ceilings.h"
#include "worker/device/device.h"

namespace fsdp {

// For the CPU device only: its memory comes from AllocateHost, so that the device's own accounting
// does not move. Takes less than 0.5 s (on cores that others leave free) and about 64 MB, which
// are freed again. Runs on the compute stream. Any error of AllocateHost or of the device's
// operations is returned as it is.
absl::StatusOr<DeviceCeilings> MeasureCeilings(Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_CEILINGS_H_

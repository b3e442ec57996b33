#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_CEILINGS_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_CEILINGS_H_

#include "absl/status/statusor.h"
#include "worker/device/ceilings.h"
#include "worker/device/device.h"

namespace fsdp {

// The ceilings of a CUDA device: square products of random numbers by its own MatMul (f32 without
// TF32) and of e4m3, each alone and back to back, and a copy in device memory. Takes some 2 s of
// the device and 0.5 GB, which are freed again. Runs on the compute stream, from the step thread.
//   RESOURCE_EXHAUSTED  the device has less memory left
absl::StatusOr<DeviceCeilings> MeasureCudaCeilings(Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_CEILINGS_H_

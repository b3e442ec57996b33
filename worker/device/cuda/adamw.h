#ifndef FSDPCTL_WORKER_DEVICE_CUDA_ADAMW_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_ADAMW_H_

// The host's part of both forms of AdamW: checks, and decay segments merged into
// as few launches as their number allows (one for up to kernels::kMaxDecayRuns runs).

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/ops.h"

namespace fsdp {

// `args` holds the checked weights of `size` elements, and m, v and grad, which are checked here.
//   INVALID_ARGUMENT  sizes or dtypes that differ, segments that do not ascend within the shard
absl::Status RunAdamW(const char* op, cudaStream_t stream, std::int64_t size,
                      kernels::AdamWArgs args, std::span<const DecaySegment> segments,
                      const AdamWOptions& options, const StepScalars* step,
                      const UpdateScalars* scalars);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_ADAMW_H_

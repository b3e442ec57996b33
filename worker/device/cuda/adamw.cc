#include "worker/device/cuda/adamw.h"

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/op_checks.h"

namespace fsdp {
namespace {

absl::Status Check(const char* op, std::int64_t size, const kernels::AdamWArgs& args,
                   std::span<const DecaySegment> segments, const StepScalars* step,
                   const UpdateScalars* scalars) {
  OpChecks check(op);
  check.Vector("m", args.m, DType::kF32, size)
      .Vector("v", args.v, DType::kF32, size)
      .Vector("grad", args.grad, DType::kF32, size)
      .That(step != nullptr, "step is null")
      .That(scalars != nullptr, "scalars is null");
  std::int64_t behind = 0;
  for (const DecaySegment& segment : segments) {
    check.That(segment.begin >= behind && segment.begin <= segment.end && segment.end <= size,
               absl::StrFormat("segments hold [%d, %d), must ascend within [%d, %d]", segment.begin,
                               segment.end, behind, size));
    behind = segment.end;
  }
  return check.status();
}

}  // namespace

absl::Status RunAdamW(const char* op, cudaStream_t stream, std::int64_t size,
                      kernels::AdamWArgs args, std::span<const DecaySegment> segments,
                      const AdamWOptions& options, const StepScalars* step,
                      const UpdateScalars* scalars) {
  RETURN_IF_ERROR(Check(op, size, args, segments, step, scalars));
  args.beta1 = options.beta1;
  args.beta2 = options.beta2;
  args.eps = options.eps;
  kernels::DecayRuns runs;
  const auto launch = [&] {
    const cudaError_t error = kernels::AdamW(stream, args, runs, step, scalars);
    runs.count = 0;
    return CudaToStatus(error, op);
  };
  for (const DecaySegment& segment : segments) {
    if (segment.begin == segment.end) continue;
    if (runs.count > 0 && runs.end[runs.count - 1] == segment.begin &&
        runs.weight_decay[runs.count - 1] == segment.weight_decay) {
      runs.end[runs.count - 1] = segment.end;
      continue;
    }
    if (runs.count == kernels::kMaxDecayRuns) RETURN_IF_ERROR(launch());
    runs.begin[runs.count] = segment.begin;
    runs.end[runs.count] = segment.end;
    runs.weight_decay[runs.count] = segment.weight_decay;
    ++runs.count;
  }
  return runs.count == 0 ? absl::OkStatus() : launch();
}

}  // namespace fsdp

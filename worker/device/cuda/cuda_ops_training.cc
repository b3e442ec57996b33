// Loss, first weights, casts, gradient statistics and the update.

#include <cstdint>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/adamw.h"
#include "worker/device/cuda/cuda_ops_impl.h"

namespace fsdp {

absl::Status CudaOps::CrossEntropy(Stream& stream, const Matrix& logits,
                                   std::span<const std::int32_t> targets, StepStats* stats,
                                   bool loss_only, std::span<std::byte> scratch) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  OpChecks check("CrossEntropy");
  check.OneOf("logits", logits.dtype, kFloats)
      .Matrix("logits", logits, logits.dtype, rows, logits.cols)
      .That(stats != nullptr, "stats is null")
      .Scratch(scratch, CrossEntropyScratchBytes(rows, logits.cols));
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::CrossEntropy(CudaStreamOf(stream), logits, targets.data(), stats,
                                        loss_only, reinterpret_cast<double*>(scratch.data())),
                  "CrossEntropy");
}

std::size_t CudaOps::CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t) const {
  return static_cast<std::size_t>(tokens) * sizeof(double);
}

absl::Status CudaOps::FillInitial(Stream& stream, const InitialDraw& draw, std::int64_t first,
                                  const Vector& out) {
  OpChecks check("FillInitial");
  check.OneOf("out", out.dtype, {DType::kF32, DType::kF64})
      .Vector("out", out, out.dtype, out.size)
      .That(first >= 0, absl::StrFormat("first is %d, must not be negative", first));
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::FillInitial(CudaStreamOf(stream), draw, first, out), "FillInitial");
}

absl::Status CudaOps::Accumulate(Stream& stream, const Vector& from, const Vector& to) {
  OpChecks check("Accumulate");
  check.OneOf("from", from.dtype, kFloats)
      .Vector("from", from, from.dtype, from.size)
      .Vector("to", to, DType::kF32, from.size);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::Accumulate(CudaStreamOf(stream), from, to), "Accumulate");
}

absl::Status CudaOps::Cast(Stream& stream, const Vector& from, const Vector& to) {
  OpChecks check("Cast");
  check.OneOf("from", from.dtype, kFloats)
      .OneOf("to", to.dtype, kFloats)
      .Vector("from", from, from.dtype, from.size)
      .Vector("to", to, to.dtype, from.size);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::Cast(CudaStreamOf(stream), from, to), "Cast");
}

absl::Status CudaOps::GradStats(Stream& stream, const Vector& grad, StepStats* stats,
                                std::span<std::byte> scratch) {
  OpChecks check("GradStats");
  check.OneOf("grad", grad.dtype, kFloats)
      .Vector("grad", grad, grad.dtype, grad.size)
      .That(stats != nullptr, "stats is null")
      .Scratch(scratch, GradStatsScratchBytes(grad.size));
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::GradStats(CudaStreamOf(stream), grad, stats,
                                     reinterpret_cast<double*>(scratch.data())),
                  "GradStats");
}

std::size_t CudaOps::GradStatsScratchBytes(std::int64_t size) const {
  return static_cast<std::size_t>(kernels::GradStatsBlocks(size)) * 2 * sizeof(double);
}

absl::Status CudaOps::FinishStats(Stream& stream, const StepStats* stats, float max_norm,
                                  const StepScalars* step, UpdateScalars* scalars) {
  OpChecks check("FinishStats");
  check.That(stats != nullptr, "stats is null").That(scalars != nullptr, "scalars is null");
  check.That(step != nullptr, "step is null");
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::FinishStats(CudaStreamOf(stream), stats, max_norm, step, scalars),
                  "FinishStats");
}

absl::Status CudaOps::AdamW(Stream& stream, const Vector& master, const Vector& m, const Vector& v,
                            const Vector& grad, std::span<const DecaySegment> segments,
                            const AdamWOptions& options, const StepScalars* step,
                            const UpdateScalars* scalars) {
  OpChecks check("AdamW");
  check.Vector("master", master, DType::kF32, master.size);
  kernels::AdamWArgs args;
  args.master = master;
  args.m = m;
  args.v = v;
  args.grad = grad;
  RETURN_IF_ERROR(check.status());
  return RunAdamW("AdamW", CudaStreamOf(stream), master.size, args, segments, options, step,
                  scalars);
}

absl::Status CudaOps::AdamWSplit(Stream& stream, const Vector& compute, const Vector& remainder,
                                 const Vector& m, const Vector& v, const Vector& grad,
                                 std::span<const DecaySegment> segments,
                                 const AdamWOptions& options, const StepScalars* step,
                                 const UpdateScalars* scalars) {
  OpChecks check("AdamWSplit");
  check.Vector("compute", compute, DType::kBf16, compute.size)
      .Vector("remainder", remainder, DType::kU16, compute.size);
  kernels::AdamWArgs args;
  args.compute = compute;
  args.remainder = remainder;
  args.m = m;
  args.v = v;
  args.grad = grad;
  RETURN_IF_ERROR(check.status());
  return RunAdamW("AdamWSplit", CudaStreamOf(stream), compute.size, args, segments, options, step,
                  scalars);
}

absl::Status CudaOps::SplitMaster(Stream& stream, const Vector& master, const Vector& compute,
                                  const Vector& remainder) {
  RETURN_IF_ERROR(CheckSplit("SplitMaster", master, compute, remainder));
  return Launched(kernels::SplitMaster(CudaStreamOf(stream), master, compute, remainder),
                  "SplitMaster");
}

absl::Status CudaOps::JoinMaster(Stream& stream, const Vector& compute, const Vector& remainder,
                                 const Vector& master) {
  RETURN_IF_ERROR(CheckSplit("JoinMaster", master, compute, remainder));
  return Launched(kernels::JoinMaster(CudaStreamOf(stream), compute, remainder, master),
                  "JoinMaster");
}

absl::Status CudaOps::CheckSplit(const char* op, const Vector& master, const Vector& compute,
                                 const Vector& remainder) {
  OpChecks check(op);
  check.Vector("master", master, DType::kF32, master.size)
      .Vector("compute", compute, DType::kBf16, master.size)
      .Vector("remainder", remainder, DType::kU16, master.size);
  return check.status();
}

}  // namespace fsdp

#include "tests/gpu/counters_workload.h"

#include "proto/support/status.h"

namespace fsdp::bench {
namespace {

constexpr DType kBf16 = DType::kBf16;
constexpr DType kF32 = DType::kF32;

}  // namespace

CountersWorkload::CountersWorkload(Device& device)
    : device_(device), arena_(device), graphs_(device, recorder_, /*enabled=*/true) {
  AddMemoryBound();
  AddTensorBound();
}

void CountersWorkload::AddMemoryBound() {
  Ops& ops = device_.ops();
  Stream& stream = device_.compute();
  const std::int64_t size = std::int64_t{64} << 20;
  const Vector from = arena_.RandomVector(kF32, size);
  const Vector to = arena_.RandomVector(kF32, size);
  parts_.push_back({"copy (adds)", KernelFamily::kCopy, KnownBound::kMemory, 3,
                    [&ops, &stream, from, to] { return ops.Accumulate(stream, from, to); }});

  const std::int64_t tokens = 32768;
  const std::int64_t dim = 4096;
  const Matrix x = arena_.Random(kBf16, tokens, dim);
  const Matrix y = arena_.Random(kBf16, tokens, dim);
  const Vector weight = arena_.RandomVector(kBf16, dim);
  const Vector rstd = arena_.RandomVector(kF32, tokens);
  parts_.push_back({"rmsnorm", KernelFamily::kNorm, KnownBound::kNearMemory, 5, [=, &ops, &stream] {
                      return ops.RmsNormForward(stream, x, {}, weight, 1e-5, {}, y, rstd);
                    }});

  const Vector m = arena_.RandomVector(kF32, size);
  // The second moment must not be negative: zeros.
  const Vector v{arena_.Bytes(static_cast<std::size_t>(size) * sizeof(float)).data(), kF32, size};
  const std::span<std::byte> step = arena_.Bytes(sizeof(StepScalars));
  const std::span<std::byte> update = arena_.Bytes(sizeof(UpdateScalars));
  parts_.push_back({"adamw", KernelFamily::kOptimizer, KnownBound::kNearMemory, 2,
                    [=, &ops, &stream, segments = std::vector<DecaySegment>{{0, size, 0.1F}}] {
                      return ops.AdamW(stream, to, m, v, from, segments, {},
                                       reinterpret_cast<const StepScalars*>(step.data()),
                                       reinterpret_cast<const UpdateScalars*>(update.data()));
                    }});

  const Matrix small = arena_.Random(kBf16, 1, 256);
  const Matrix small_out = arena_.Random(kBf16, 1, 256);
  parts_.push_back({"2 us kernels", KernelFamily::kActivation, KnownBound::kLatency, 400,
                    [=, &ops, &stream] { return ops.SiluForward(stream, small, small_out); }});
}

void CountersWorkload::AddTensorBound() {
  Ops& ops = device_.ops();
  Stream& stream = device_.compute();
  const std::int64_t n = 8192;
  const Matrix a = arena_.Random(kBf16, n, n);
  const Matrix b = arena_.Random(kBf16, n, n);
  const Matrix out = arena_.Random(kBf16, n, n);
  parts_.push_back(
      {"matmul 8192^3 bf16", KernelFamily::kMatMulMlp, KnownBound::kCompute, 1, [=, &ops, &stream] {
         return ops.MatMul(stream, a, Transpose::kNo, b, Transpose::kYes, {}, out, false);
       }});

  const AttentionShape shape{.batch = 4,
                             .seq = 4096,
                             .num_heads = 16,
                             .num_kv_heads = 16,
                             .head_dim = 128,
                             .causal = true};
  const std::int64_t tokens = shape.batch * shape.seq;
  const std::int64_t width = shape.num_heads * shape.head_dim;
  const Matrix qkv = arena_.Random(kBf16, tokens, 3 * width);
  const Matrix context = arena_.Random(kBf16, tokens, width);
  const Vector lse = arena_.RandomVector(kF32, tokens * shape.num_heads);
  const std::span<std::byte> scratch =
      arena_.Bytes(ops.AttentionScratchBytes(shape, kBf16, /*backward=*/false));
  // Attention leaves part of both roofs; what it must agree with is ncu.
  parts_.push_back({"attention 4x4096", KernelFamily::kAttentionForward, KnownBound::kAny, 4,
                    [=, &ops, &stream] {
                      return ops.AttentionForward(stream, qkv, shape, {}, context, lse, scratch);
                    }});
}

absl::Status CountersWorkload::Step() {
  graphs_.BeginOrder();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const WorkloadPart& part = parts_[i];
    RETURN_IF_ERROR(graphs_.Run({.stage = static_cast<int>(i)}, [&]() -> absl::Status {
      for (int k = 0; k < part.launches; ++k) {
        RETURN_IF_ERROR(Launch(recorder_, {.family = part.family}, part.run));
      }
      return absl::OkStatus();
    }));
  }
  order_ = graphs_.EndOrder();
  return absl::OkStatus();
}

absl::Status CountersWorkload::Once() {
  for (const WorkloadPart& part : parts_) RETURN_IF_ERROR(part.run());
  return absl::OkStatus();
}

}  // namespace fsdp::bench

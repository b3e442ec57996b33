// The ends of a step: embedding, loss, gradient statistics and the optimizer.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "worker/device/cpu/cpu_ops.h"
#include "worker/device/op_checks.h"

namespace fsdp::cpu {
namespace {

// Elements whose squares one task sums; one f64 and a flag of scratch each.
constexpr std::int64_t kStatsChunk = 65536;
// torch.nn.utils.clip_grad_norm_ adds this to the norm.
constexpr double kClipEpsilon = 1e-6;

struct ChunkStats {
  double sum_squares;
  bool finite;
};

std::int64_t NumChunks(std::int64_t size) { return (size + kStatsChunk - 1) / kStatsChunk; }

absl::Status CheckIds(const char* op, const char* name, std::span<const std::int32_t> ids,
                      std::int64_t limit, bool ignore_allowed) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < limit) continue;
    if (ignore_allowed && ids[i] == kIgnoreTarget) continue;
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s[%d] is %d, must be in [0, %d)%s", op,
                                                      name, i, ids[i], limit,
                                                      ignore_allowed ? " or -100" : ""));
  }
  return absl::OkStatus();
}

std::byte* RowOf(const Matrix& x, std::int64_t row) {
  return static_cast<std::byte*>(x.data) +
         row * x.stride * static_cast<std::int64_t>(SizeOf(x.dtype));
}

OpChecks& CheckSegments(OpChecks& check, std::span<const DecaySegment> segments,
                        std::int64_t size) {
  for (const DecaySegment& segment : segments) {
    check.That(segment.begin >= 0 && segment.begin <= segment.end && segment.end <= size,
               absl::StrFormat("segments has [%d, %d), must lie in [0, %d)", segment.begin,
                               segment.end, size));
  }
  return check;
}

}  // namespace

absl::Status CpuOps::EmbeddingForward(Stream& stream, std::span<const std::int32_t> tokens,
                                      const Matrix& table, const Matrix& positions,
                                      std::int64_t seq, std::span<const std::int32_t> position_ids,
                                      const Matrix& out) {
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const bool has_positions = positions.data != nullptr;
  OpChecks check("EmbeddingForward");
  check.OneOf("table", table.dtype, kOperandTypes);
  check.Matrix("table", table, table.dtype, table.rows, table.cols);
  check.Matrix("out", out, table.dtype, num_tokens, table.cols);
  check.Positions("positions", positions, table.dtype, table.cols, seq, position_ids, num_tokens);
  return Enqueue(stream, check.status(), [=, this]() -> absl::Status {
    absl::Status valid = CheckIds("EmbeddingForward", "tokens", tokens, table.rows, false);
    valid.Update(CheckIds("EmbeddingForward", "position_ids", position_ids, seq, false));
    if (!valid.ok()) return valid;
    const EmbeddingArgs args = {
        .tokens = tokens.data(),
        .table = table.data,
        .positions = has_positions ? positions.data : nullptr,
        .position_ids = position_ids.empty() ? nullptr : position_ids.data(),
        .out = out.data,
        .table_stride = table.stride,
        .positions_stride = positions.stride,
        .out_stride = out.stride,
        .seq = seq,
        .cols = table.cols};
    const Kernels& kernels = KernelsFor(kernels_, table.dtype);
    ForRanges(num_tokens, table.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.embedding_forward(args, begin, end);
    });
    return absl::OkStatus();
  });
}

// to[keys[t], :] (+)= from[t, :], rows of one key in order of t. Each row of `to` is summed in the
// type of sums and stored once, so that bf16 gradients round once.
void CpuOps::ScatterRows(std::span<const std::int64_t> keys, const Matrix& from, const Matrix& to,
                         bool accumulate) {
  const auto size = static_cast<std::int64_t>(keys.size());
  if (!accumulate) {
    const std::size_t row_bytes = static_cast<std::size_t>(to.cols) * SizeOf(to.dtype);
    ForRanges(to.rows, to.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) std::memset(RowOf(to, row), 0, row_bytes);
    });
  }
  if (size == 0 || to.cols == 0) return;
  thread_local std::vector<std::int64_t> order;
  thread_local std::vector<std::int64_t> starts;
  order.resize(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return keys[a] < keys[b]; });
  starts.clear();
  for (std::int64_t i = 0; i < size; ++i) {
    if (i == 0 || keys[order[i]] != keys[order[i - 1]]) starts.push_back(i);
  }
  const auto num_rows = static_cast<std::int64_t>(starts.size());
  starts.push_back(size);
  const Kernels& kernels = KernelsFor(kernels_, from.dtype);
  // The vectors belong to this thread: workers read them through these views.
  const std::span<const std::int64_t> rows(order);
  const std::span<const std::int64_t> bounds(starts);
  const bool out_is_sum = to.dtype == SumType(from.dtype);
  ForRanges(num_rows, from.cols * (size / num_rows), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GatherSumArgs args = {.x = from.data,
                                  .index = rows.data(),
                                  .begin = bounds[i],
                                  .end = bounds[i + 1],
                                  .out = RowOf(to, keys[rows[bounds[i]]]),
                                  .x_stride = from.stride,
                                  .cols = from.cols,
                                  .out_is_sum = out_is_sum,
                                  .accumulate = accumulate};
      kernels.gather_sum(args, 0, from.cols);
    }
  });
}

absl::Status CpuOps::EmbeddingBackward(Stream& stream, std::span<const std::int32_t> tokens,
                                       const Matrix& dout, std::int64_t seq,
                                       std::span<const std::int32_t> position_ids,
                                       const Matrix& d_table, const Matrix& d_positions,
                                       bool accumulate) {
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const bool has_positions = d_positions.data != nullptr;
  const DType sums = SumType(dout.dtype);
  OpChecks check("EmbeddingBackward");
  check.OneOf("dout", dout.dtype, kOperandTypes);
  check.Matrix("dout", dout, dout.dtype, num_tokens, dout.cols);
  check.OneOf("d_table", d_table.dtype, {sums, dout.dtype});
  check.Matrix("d_table", d_table, d_table.dtype, d_table.rows, dout.cols);
  if (has_positions) check.OneOf("d_positions", d_positions.dtype, {sums, dout.dtype});
  check.Positions("d_positions", d_positions, d_positions.dtype, dout.cols, seq, position_ids,
                  num_tokens);
  return Enqueue(stream, check.status(), [=, this]() -> absl::Status {
    absl::Status valid = CheckIds("EmbeddingBackward", "tokens", tokens, d_table.rows, false);
    valid.Update(CheckIds("EmbeddingBackward", "position_ids", position_ids, seq, false));
    if (!valid.ok()) return valid;
    thread_local std::vector<std::int64_t> keys;
    keys.assign(tokens.begin(), tokens.end());
    ScatterRows(keys, dout, d_table, accumulate);
    if (!has_positions) return absl::OkStatus();
    if (position_ids.empty()) {
      for (std::int64_t t = 0; t < num_tokens; ++t) keys[t] = t % seq;
    } else {
      keys.assign(position_ids.begin(), position_ids.end());
    }
    ScatterRows(keys, dout, d_positions, accumulate);
    return absl::OkStatus();
  });
}

absl::Status CpuOps::CrossEntropy(Stream& stream, const Matrix& logits,
                                  std::span<const std::int32_t> targets, StepStats* stats,
                                  bool loss_only, std::span<std::byte> scratch) {
  const auto num_tokens = static_cast<std::int64_t>(targets.size());
  OpChecks check("CrossEntropy");
  check.OneOf("logits", logits.dtype, kOperandTypes);
  check.Matrix("logits", logits, logits.dtype, num_tokens, logits.cols);
  check.That(stats != nullptr, "stats is null");
  check.Scratch(scratch, CrossEntropyScratchBytes(num_tokens, logits.cols));
  return Enqueue(stream, check.status(), [=, this]() -> absl::Status {
    absl::Status valid = CheckIds("CrossEntropy", "targets", targets, logits.cols, true);
    if (!valid.ok()) return valid;
    auto* row_loss = reinterpret_cast<double*>(scratch.data());
    const CrossEntropyArgs args = {logits.data,   targets.data(), row_loss,
                                   logits.stride, logits.cols,    loss_only};
    const Kernels& kernels = KernelsFor(kernels_, logits.dtype);
    ForRanges(num_tokens, logits.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.cross_entropy(args, begin, end);
    });
    for (std::int64_t row = 0; row < num_tokens; ++row) {
      if (targets[row] == kIgnoreTarget) continue;
      stats->loss_sum += row_loss[row];
      stats->valid_tokens += 1;
    }
    return absl::OkStatus();
  });
}

std::size_t CpuOps::CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t /*vocab*/) const {
  return static_cast<std::size_t>(tokens) * sizeof(double);
}

absl::Status CpuOps::FillInitial(Stream& stream, const InitialDraw& draw, std::int64_t first,
                                 const Vector& out) {
  // A value costs as much as some 32 elements of a plain pass.
  constexpr std::int64_t kCost = 32;
  OpChecks check("FillInitial");
  check.OneOf("out", out.dtype, {DType::kF32, DType::kF64}).Vector("out", out, out.dtype, out.size);
  check.That(first >= 0, absl::StrFormat("first is %d, must not be negative", first));
  return Enqueue(stream, check.status(), [=, this] {
    ForRanges(out.size, kCost, 64, [&](std::int64_t begin, std::int64_t end) {
      const auto fill = [&](auto* values) {
        FillInitialValues(draw, first + begin,
                          std::span(values + begin, static_cast<std::size_t>(end - begin)));
      };
      if (out.dtype == DType::kF64) {
        fill(static_cast<double*>(out.data));
      } else {
        fill(static_cast<float*>(out.data));
      }
    });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::Accumulate(Stream& stream, const Vector& from, const Vector& to) {
  OpChecks check("Accumulate");
  check.OneOf("from", from.dtype, kOperandTypes).Vector("from", from, from.dtype, from.size);
  check.OneOf("to", to.dtype, {DType::kF32, DType::kF64}).Vector("to", to, to.dtype, from.size);
  return Enqueue(stream, check.status(), [=, this] {
    const auto run = kernels_.accumulate[static_cast<int>(from.dtype)][static_cast<int>(to.dtype)];
    ForRanges(from.size, 1, 64,
              [&](std::int64_t begin, std::int64_t end) { run(from.data, to.data, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::Cast(Stream& stream, const Vector& from, const Vector& to) {
  OpChecks check("Cast");
  check.OneOf("from", from.dtype, kOperandTypes).Vector("from", from, from.dtype, from.size);
  check.OneOf("to", to.dtype, kOperandTypes).Vector("to", to, to.dtype, from.size);
  return Enqueue(stream, check.status(), [=, this] {
    const auto run = kernels_.cast[static_cast<int>(from.dtype)][static_cast<int>(to.dtype)];
    ForRanges(from.size, 1, 64,
              [&](std::int64_t begin, std::int64_t end) { run(from.data, to.data, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::GradStats(Stream& stream, const Vector& grad, StepStats* stats,
                               std::span<std::byte> scratch) {
  OpChecks check("GradStats");
  check.OneOf("grad", grad.dtype, kOperandTypes).Vector("grad", grad, grad.dtype, grad.size);
  check.That(stats != nullptr, "stats is null");
  check.Scratch(scratch, GradStatsScratchBytes(grad.size));
  return Enqueue(stream, check.status(), [=, this] {
    auto* chunks = reinterpret_cast<ChunkStats*>(scratch.data());
    const auto run = KernelsFor(kernels_, grad.dtype).sum_squares;
    auto task = [&](std::int64_t index, int /*slot*/) {
      ChunkStats& chunk = chunks[index];
      chunk.finite = true;
      chunk.sum_squares = run(grad.data, index * kStatsChunk,
                              std::min(grad.size, (index + 1) * kStatsChunk), &chunk.finite);
    };
    pool_.ParallelFor(NumChunks(grad.size), task);
    bool finite = true;
    for (std::int64_t i = 0; i < NumChunks(grad.size); ++i) {
      stats->grad_norm_sq += chunks[i].sum_squares;
      finite = finite && chunks[i].finite;
    }
    if (!finite) stats->nonfinite += 1;
    return absl::OkStatus();
  });
}

std::size_t CpuOps::GradStatsScratchBytes(std::int64_t size) const {
  return static_cast<std::size_t>(NumChunks(size)) * sizeof(ChunkStats);
}

absl::Status CpuOps::FinishStats(Stream& stream, const StepStats* stats, float max_norm,
                                 const StepScalars* step, UpdateScalars* scalars) {
  OpChecks check("FinishStats");
  check.That(stats != nullptr, "stats is null").That(scalars != nullptr, "scalars is null");
  check.That(step != nullptr, "step is null");
  return Enqueue(stream, check.status(), [=] {
    const double tokens = stats->valid_tokens;
    const bool any = tokens > 0;
    const double norm = any ? std::sqrt(stats->grad_norm_sq) / tokens : 0;
    double clip = 1;
    if (max_norm > 0) clip = std::min(1.0, static_cast<double>(max_norm) / (norm + kClipEpsilon));
    const double loss = any ? stats->loss_sum / tokens : 0;
    const bool finite = stats->nonfinite == 0 && std::isfinite(norm) && std::isfinite(loss);
    const bool usable =
        any && finite && loss <= step->bounds.loss && norm <= step->bounds.grad_norm;
    scalars->grad_scale = usable ? static_cast<float>(clip / tokens) : 0.0F;
    scalars->skip = usable ? 0.0F : 1.0F;
    scalars->grad_norm = static_cast<float>(norm);
    scalars->loss = static_cast<float>(loss);
    return absl::OkStatus();
  });
}

void CpuOps::RunAdamW(AdamWArgs args, DType dtype, std::span<const DecaySegment> segments,
                      const AdamWOptions& options, const StepScalars& step,
                      const UpdateScalars& scalars) {
  if (scalars.skip != 0) return;
  args.beta1 = options.beta1;
  args.beta2 = options.beta2;
  args.eps = options.eps;
  args.step_size = step.step_size;
  args.inverse_sqrt_bias2 = step.inverse_sqrt_correction2;
  args.grad_scale = scalars.grad_scale;
  const auto run = KernelsFor(kernels_, dtype).adamw;
  for (const DecaySegment& segment : segments) {
    args.decay_factor = 1 - step.lr * static_cast<double>(segment.weight_decay);
    ForRanges(segment.end - segment.begin, 1, 64, [&](std::int64_t begin, std::int64_t end) {
      run(args, segment.begin + begin, segment.begin + end);
    });
  }
}

absl::Status CpuOps::AdamW(Stream& stream, const Vector& master, const Vector& m, const Vector& v,
                           const Vector& grad, std::span<const DecaySegment> segments,
                           const AdamWOptions& options, const StepScalars* step,
                           const UpdateScalars* scalars) {
  OpChecks check("AdamW");
  check.OneOf("master", master.dtype, {DType::kF32, DType::kF64});
  check.Vector("master", master, master.dtype, master.size);
  check.Vector("m", m, master.dtype, master.size).Vector("v", v, master.dtype, master.size);
  check.Vector("grad", grad, master.dtype, master.size);
  check.That(step != nullptr, "step is null");
  check.That(scalars != nullptr, "scalars is null");
  CheckSegments(check, segments, master.size);
  return Enqueue(stream, check.status(), [=, this] {
    AdamWArgs args = {};
    args.master = master.data;
    args.m = m.data;
    args.v = v.data;
    args.grad = grad.data;
    RunAdamW(args, master.dtype, segments, options, *step, *scalars);
    return absl::OkStatus();
  });
}

absl::Status CpuOps::AdamWSplit(Stream& stream, const Vector& compute, const Vector& remainder,
                                const Vector& m, const Vector& v, const Vector& grad,
                                std::span<const DecaySegment> segments, const AdamWOptions& options,
                                const StepScalars* step, const UpdateScalars* scalars) {
  OpChecks check("AdamWSplit");
  check.Vector("compute", compute, DType::kBf16, compute.size);
  check.Vector("remainder", remainder, DType::kU16, compute.size);
  check.Vector("m", m, DType::kF32, compute.size).Vector("v", v, DType::kF32, compute.size);
  check.Vector("grad", grad, DType::kF32, compute.size);
  check.That(step != nullptr, "step is null");
  check.That(scalars != nullptr, "scalars is null");
  CheckSegments(check, segments, compute.size);
  return Enqueue(stream, check.status(), [=, this] {
    AdamWArgs args = {};
    args.m = m.data;
    args.v = v.data;
    args.grad = grad.data;
    args.compute = compute.data;
    args.remainder = remainder.data;
    RunAdamW(args, DType::kF32, segments, options, *step, *scalars);
    return absl::OkStatus();
  });
}

absl::Status CpuOps::SplitMaster(Stream& stream, const Vector& master, const Vector& compute,
                                 const Vector& remainder) {
  OpChecks check("SplitMaster");
  check.Vector("master", master, DType::kF32, master.size);
  check.Vector("compute", compute, DType::kBf16, master.size);
  check.Vector("remainder", remainder, DType::kU16, master.size);
  return Enqueue(stream, check.status(), [=, this] {
    ForRanges(master.size, 1, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels_.split_master(static_cast<const float*>(master.data),
                            static_cast<std::uint16_t*>(compute.data),
                            static_cast<std::uint16_t*>(remainder.data), begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::JoinMaster(Stream& stream, const Vector& compute, const Vector& remainder,
                                const Vector& master) {
  OpChecks check("JoinMaster");
  check.Vector("master", master, DType::kF32, master.size);
  check.Vector("compute", compute, DType::kBf16, master.size);
  check.Vector("remainder", remainder, DType::kU16, master.size);
  return Enqueue(stream, check.status(), [=, this] {
    ForRanges(master.size, 1, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels_.join_master(static_cast<const std::uint16_t*>(compute.data),
                           static_cast<const std::uint16_t*>(remainder.data),
                           static_cast<float*>(master.data), begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace fsdp::cpu

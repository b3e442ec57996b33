// Rope, and the norm of query and key heads before it.

#include <cstring>

#include "worker/device/cpu/cpu_ops.h"
#include "worker/device/op_checks.h"

namespace fsdp::cpu {
namespace {

// Columns [head Dh, (head + 1) Dh) of every row, as an address.
void* HeadOf(const Matrix& x, std::int64_t head, std::int64_t head_dim) {
  return static_cast<std::byte*>(x.data) +
         head * head_dim * static_cast<std::int64_t>(SizeOf(x.dtype));
}

void* ElementOf(const Vector& x, std::int64_t index) {
  return static_cast<std::byte*>(x.data) + index * static_cast<std::int64_t>(SizeOf(x.dtype));
}

void CopyRows(const Matrix& from, const Matrix& to, std::int64_t begin, std::int64_t end) {
  const auto element = static_cast<std::int64_t>(SizeOf(to.dtype));
  for (std::int64_t row = begin; row < end; ++row) {
    std::memcpy(static_cast<std::byte*>(to.data) + row * to.stride * element,
                static_cast<const std::byte*>(from.data) + row * from.stride * element,
                static_cast<std::size_t>(to.cols * element));
  }
}

}  // namespace

void CpuOps::RunRope(const Matrix& qkv, const AttentionShape& shape, const Matrix& cos,
                     const Matrix& sin, bool inverse) {
  const RopeArgs args = {.qkv = qkv.data,
                         .cos = cos.data,
                         .sin = sin.data,
                         .qkv_stride = qkv.stride,
                         .cos_stride = cos.stride,
                         .sin_stride = sin.stride,
                         .seq = shape.seq,
                         .heads = shape.num_heads + shape.num_kv_heads,
                         .head_dim = shape.head_dim,
                         .inverse = inverse};
  const Kernels& kernels = KernelsFor(kernels_, qkv.dtype);
  ForRanges(qkv.rows, qkv.cols, 1,
            [&](std::int64_t begin, std::int64_t end) { kernels.rope(args, begin, end); });
}

absl::Status CpuOps::Rope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                          const Matrix& cos, const Matrix& sin, bool inverse) {
  OpChecks check("Rope");
  check.Heads("qkv", qkv, shape).RopeTables(cos, sin, shape, SumType(qkv.dtype));
  return Enqueue(stream, check.status(), [=, this] {
    RunRope(qkv, shape, cos, sin, inverse);
    return absl::OkStatus();
  });
}

// Each head of all tokens is a matrix whose rows the norm's kernels take.
absl::Status CpuOps::QkNormRope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                                double eps, const QkNormOperands& operands) {
  OpChecks check("QkNormRope");
  check.QkNorm("qkv", qkv, shape, operands);
  return Enqueue(stream, check.status(), [=, this] {
    const Kernels& kernels = KernelsFor(kernels_, qkv.dtype);
    ForRanges(qkv.rows, qkv.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      CopyRows(qkv, operands.raw, begin, end);
      for (std::int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) {
        NormForwardArgs args = {};
        args.x = HeadOf(operands.raw, head, shape.head_dim);
        args.x_stride = operands.raw.stride;
        args.y = HeadOf(qkv, head, shape.head_dim);
        args.y_stride = qkv.stride;
        args.weight = head < shape.num_heads ? operands.q_weight.data : operands.k_weight.data;
        args.rstd = ElementOf(operands.rstd, head * qkv.rows);
        args.cols = shape.head_dim;
        args.eps = eps;
        kernels.norm_forward(args, begin, end);
      }
    });
    RunRope(qkv, shape, operands.cos, operands.sin, /*inverse=*/false);
    return absl::OkStatus();
  });
}

absl::Status CpuOps::QkNormRopeBackward(Stream& stream, const Matrix& d_qkv,
                                        const AttentionShape& shape, const QkNormOperands& operands,
                                        const Vector& d_q_weight, const Vector& d_k_weight,
                                        bool accumulate, std::span<std::byte> scratch) {
  const DType sums = SumType(d_qkv.dtype);
  OpChecks check("QkNormRopeBackward");
  check.QkNorm("d_qkv", d_qkv, shape, operands)
      .OneOf("d_q_weight", d_q_weight.dtype, {sums, d_qkv.dtype})
      .Vector("d_q_weight", d_q_weight, d_q_weight.dtype, shape.head_dim)
      .Vector("d_k_weight", d_k_weight, d_q_weight.dtype, shape.head_dim)
      .Scratch(scratch, QkNormBackwardScratchBytes(d_qkv.rows, shape.head_dim));
  return Enqueue(stream, check.status(), [=, this] {
    const Kernels& kernels = KernelsFor(kernels_, d_qkv.dtype);
    RunRope(d_qkv, shape, operands.cos, operands.sin, /*inverse=*/true);
    const auto head_args = [&](std::int64_t head) {
      NormBackwardArgs args = {};
      args.dy = args.dx = HeadOf(d_qkv, head, shape.head_dim);
      args.dy_stride = args.dx_stride = d_qkv.stride;
      args.x = HeadOf(operands.raw, head, shape.head_dim);
      args.x_stride = operands.raw.stride;
      args.weight = head < shape.num_heads ? operands.q_weight.data : operands.k_weight.data;
      args.rstd = ElementOf(operands.rstd, head * d_qkv.rows);
      args.rows = d_qkv.rows;
      args.cols = shape.head_dim;
      args.d_weight_is_sum = true;
      return args;
    };
    const auto cast = [&](const void* from, DType from_type, void* to, DType to_type) {
      kernels_.cast[static_cast<int>(from_type)][static_cast<int>(to_type)](from, to, 0,
                                                                            shape.head_dim);
    };
    // The heads' sums are added up unrounded, then rounded once.
    const auto weight_gradient = [&](std::int64_t first, std::int64_t count, const Vector& out) {
      if (accumulate) cast(out.data, out.dtype, scratch.data(), sums);
      ForRanges(shape.head_dim, d_qkv.rows * count, kColumnGranularity,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t head = first; head < first + count; ++head) {
                    NormBackwardArgs args = head_args(head);
                    args.d_weight = scratch.data();
                    args.accumulate = accumulate || head > first;
                    kernels.norm_d_weight(args, begin, end);
                  }
                });
      cast(scratch.data(), sums, out.data, out.dtype);
    };
    weight_gradient(0, shape.num_heads, d_q_weight);
    weight_gradient(shape.num_heads, shape.num_kv_heads, d_k_weight);
    ForRanges(d_qkv.rows, d_qkv.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) {
        kernels.norm_dx(head_args(head), begin, end);
      }
    });
    return absl::OkStatus();
  });
}

std::size_t CpuOps::QkNormBackwardScratchBytes(std::int64_t /*tokens*/,
                                               std::int64_t head_dim) const {
  return static_cast<std::size_t>(head_dim) * SizeOf(DType::kF64);
}

}  // namespace fsdp::cpu

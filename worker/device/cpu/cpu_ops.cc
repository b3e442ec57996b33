#include "worker/device/cpu/cpu_ops.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/device/cpu/cpu_attention.h"
#include "worker/device/cpu/cpu_stream.h"
#include "worker/device/op_checks.h"

namespace fsdp::cpu {

absl::Status CpuOps::Enqueue(Stream& stream, const absl::Status& checked,
                             std::function<absl::Status()> work) {
  if (!checked.ok()) return checked;
  const absl::StatusOr<CpuStream*> cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  return (*cpu_stream)->Enqueue(std::move(work));
}

absl::Status CpuOps::MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                            Transpose trans_b, const Vector& bias, const Matrix& out,
                            bool accumulate) {
  const bool ta = trans_a == Transpose::kYes;
  const bool tb = trans_b == Transpose::kYes;
  const std::int64_t m = ta ? a.cols : a.rows;
  const std::int64_t k = ta ? a.rows : a.cols;
  const std::int64_t n = tb ? b.rows : b.cols;
  OpChecks check("MatMul");
  check.OneOf("a", a.dtype, kOperandTypes).Matrix("a", a, a.dtype, a.rows, a.cols);
  check.Matrix("b", b, a.dtype, tb ? n : k, tb ? k : n);
  const bool wide_out = a.dtype == DType::kBf16 && out.dtype == DType::kF32;
  check.Matrix("out", out, wide_out ? DType::kF32 : a.dtype, m, n);
  if (bias.data != nullptr) check.Vector("bias", bias, a.dtype, n);
  return Enqueue(stream, check.status(),
                 [=, this] { return matmul_.Run(a, trans_a, b, trans_b, bias, out, accumulate); });
}

absl::Status CpuOps::NormForward(const char* op, bool layer, Stream& stream, const Matrix& x,
                                 const Matrix& delta, const Vector& weight, const Vector& bias,
                                 double eps, const Matrix& sum, const Matrix& y, const Vector& mean,
                                 const Vector& rstd) {
  const bool has_delta = delta.data != nullptr;
  OpChecks check(op);
  check.OneOf("x", x.dtype, kOperandTypes).Matrix("x", x, x.dtype, x.rows, x.cols);
  if (has_delta) {
    check.Matrix("delta", delta, x.dtype, x.rows, x.cols);
    check.Matrix("sum", sum, x.dtype, x.rows, x.cols);
  }
  check.Vector("weight", weight, x.dtype, x.cols);
  if (layer) {
    check.Vector("bias", bias, x.dtype, x.cols);
    check.Vector("mean", mean, SumType(x.dtype), x.rows);
  }
  check.Matrix("y", y, x.dtype, x.rows, x.cols);
  check.Vector("rstd", rstd, SumType(x.dtype), x.rows);
  return Enqueue(stream, check.status(), [=, this] {
    NormForwardArgs args = {};
    args.x = x.data;
    args.delta = has_delta ? delta.data : nullptr;
    args.weight = weight.data;
    args.bias = layer ? bias.data : nullptr;
    args.sum = sum.data;
    args.y = y.data;
    args.mean = layer ? mean.data : nullptr;
    args.rstd = rstd.data;
    args.x_stride = x.stride;
    args.delta_stride = delta.stride;
    args.sum_stride = sum.stride;
    args.y_stride = y.stride;
    args.cols = x.cols;
    args.eps = eps;
    const Kernels& kernels = KernelsFor(kernels_, x.dtype);
    ForRanges(x.rows, x.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.norm_forward(args, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::NormBackward(const char* op, bool layer, Stream& stream, const Matrix& dy,
                                  const Matrix& x, const Vector& weight, const Vector& bias,
                                  const Vector& mean, const Vector& rstd, const Matrix& residual,
                                  const Matrix& dx, const Matrix& y, const Vector& d_weight,
                                  const Vector& d_bias, bool accumulate) {
  const bool has_residual = residual.data != nullptr;
  const bool has_y = y.data != nullptr;
  const DType sums = SumType(x.dtype);
  OpChecks check(op);
  check.OneOf("x", x.dtype, kOperandTypes).Matrix("x", x, x.dtype, x.rows, x.cols);
  check.Matrix("dy", dy, x.dtype, x.rows, x.cols).Vector("weight", weight, x.dtype, x.cols);
  check.Vector("rstd", rstd, sums, x.rows).Matrix("dx", dx, x.dtype, x.rows, x.cols);
  if (has_residual) check.Matrix("residual", residual, x.dtype, x.rows, x.cols);
  check.OneOf("d_weight", d_weight.dtype, {sums, x.dtype});
  check.Vector("d_weight", d_weight, d_weight.dtype, x.cols);
  if (layer) {
    check.Vector("mean", mean, sums, x.rows);
    check.OneOf("d_bias", d_bias.dtype, {sums, x.dtype});
    check.Vector("d_bias", d_bias, d_bias.dtype, x.cols);
    if (has_y) check.Vector("bias", bias, x.dtype, x.cols);
  }
  if (has_y) check.Matrix("y", y, x.dtype, x.rows, x.cols);
  return Enqueue(stream, check.status(), [=, this] {
    NormBackwardArgs args = {};
    args.dy = dy.data;
    args.x = x.data;
    args.weight = weight.data;
    args.mean = layer ? mean.data : nullptr;
    args.rstd = rstd.data;
    args.residual = has_residual ? residual.data : nullptr;
    args.dx = dx.data;
    args.y = has_y ? y.data : nullptr;
    args.bias = layer ? bias.data : nullptr;
    args.d_weight = d_weight.data;
    args.d_bias = layer ? d_bias.data : nullptr;
    args.dy_stride = dy.stride;
    args.x_stride = x.stride;
    args.residual_stride = residual.stride;
    args.dx_stride = dx.stride;
    args.y_stride = y.stride;
    args.rows = x.rows;
    args.cols = x.cols;
    args.d_weight_is_sum = d_weight.dtype == sums;
    args.d_bias_is_sum = d_bias.dtype == sums;
    args.accumulate = accumulate;
    const Kernels& kernels = KernelsFor(kernels_, x.dtype);
    // The weight's gradient first: dx or y may alias dy.
    ForRanges(x.cols, x.rows, kColumnGranularity, [&](std::int64_t begin, std::int64_t end) {
      kernels.norm_d_weight(args, begin, end);
    });
    ForRanges(x.rows, x.cols, 1,
              [&](std::int64_t begin, std::int64_t end) { kernels.norm_dx(args, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::RmsNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                    const Vector& weight, double eps, const Matrix& sum,
                                    const Matrix& y, const Vector& rstd) {
  return NormForward("RmsNormForward", false, stream, x, delta, weight, {}, eps, sum, y, {}, rstd);
}

absl::Status CpuOps::RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                     const Vector& weight, const Vector& rstd,
                                     const Matrix& residual, const Matrix& dx, const Matrix& y,
                                     const Vector& d_weight, bool accumulate,
                                     std::span<std::byte> /*scratch*/) {
  return NormBackward("RmsNormBackward", false, stream, dy, x, weight, {}, {}, rstd, residual, dx,
                      y, d_weight, {}, accumulate);
}

std::size_t CpuOps::NormBackwardScratchBytes(std::int64_t /*tokens*/, std::int64_t /*dim*/) const {
  return 0;
}

absl::Status CpuOps::LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                      const Vector& weight, const Vector& bias, double eps,
                                      const Matrix& sum, const Matrix& y, const Vector& mean,
                                      const Vector& rstd) {
  return NormForward("LayerNormForward", true, stream, x, delta, weight, bias, eps, sum, y, mean,
                     rstd);
}

absl::Status CpuOps::LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                       const Vector& weight, const Vector& bias, const Vector& mean,
                                       const Vector& rstd, const Matrix& residual, const Matrix& dx,
                                       const Matrix& y, const Vector& d_weight,
                                       const Vector& d_bias, bool accumulate,
                                       std::span<std::byte> /*scratch*/) {
  return NormBackward("LayerNormBackward", true, stream, dy, x, weight, bias, mean, rstd, residual,
                      dx, y, d_weight, d_bias, accumulate);
}

absl::Status CpuOps::AttentionForward(Stream& stream, const Matrix& qkv,
                                      const AttentionShape& shape,
                                      std::span<const std::int32_t> document_begins,
                                      const Matrix& out, const Vector& lse,
                                      std::span<std::byte> scratch) {
  OpChecks check("AttentionForward");
  check.Heads("qkv", qkv, shape).Documents(shape, document_begins);
  const std::int64_t tokens = shape.batch * shape.seq;
  check.Matrix("out", out, qkv.dtype, tokens, shape.num_heads * shape.head_dim);
  check.Vector("lse", lse, SumType(qkv.dtype), tokens * shape.num_heads);
  if (check.status().ok()) {
    check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, false));
  }
  return Enqueue(stream, check.status(), [=, this] {
    return CpuAttentionForward(kernels_, pool_, qkv, shape, document_begins, out, lse, scratch);
  });
}

absl::Status CpuOps::AttentionBackward(Stream& stream, const Matrix& d_out, const Matrix& qkv,
                                       const Matrix& out, const Vector& lse,
                                       const AttentionShape& shape,
                                       std::span<const std::int32_t> document_begins,
                                       const Matrix& d_qkv, std::span<std::byte> scratch) {
  OpChecks check("AttentionBackward");
  check.Heads("qkv", qkv, shape).Documents(shape, document_begins);
  const std::int64_t tokens = shape.batch * shape.seq;
  check.Matrix("d_out", d_out, qkv.dtype, tokens, shape.num_heads * shape.head_dim);
  check.Matrix("out", out, qkv.dtype, tokens, shape.num_heads * shape.head_dim);
  check.Vector("lse", lse, SumType(qkv.dtype), tokens * shape.num_heads);
  check.Matrix("d_qkv", d_qkv, qkv.dtype, qkv.rows, qkv.cols);
  if (check.status().ok()) {
    check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, true));
  }
  return Enqueue(stream, check.status(), [=, this] {
    return CpuAttentionBackward(kernels_, pool_, d_out, qkv, out, lse, shape, document_begins,
                                d_qkv, scratch);
  });
}

std::size_t CpuOps::AttentionScratchBytes(const AttentionShape& shape, DType dtype,
                                          bool backward) const {
  return CpuAttentionScratchBytes(shape, dtype, backward, pool_.num_threads());
}

absl::StatusOr<AttentionKernels> CpuOps::ChosenAttention(const AttentionShape& /*shape*/,
                                                         DType dtype) const {
  const std::string name =
      absl::StrCat(dtype == DType::kF64 ? "own fp64, " : "own fp32, ", kernels_.isa);
  return AttentionKernels{name, name};
}

absl::Status CpuOps::Unary(const char* op, ElementwiseKernel kernel, Stream& stream,
                           const Matrix& x, const Matrix& y) {
  OpChecks check(op);
  check.OneOf("x", x.dtype, kOperandTypes).Matrix("x", x, x.dtype, x.rows, x.cols);
  check.Matrix("y", y, x.dtype, x.rows, x.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ElementwiseArgs args = {x.data, nullptr, y.data, x.stride, 0, y.stride, x.cols};
    const auto run = KernelsFor(kernels_, x.dtype).*kernel;
    ForRanges(x.rows, x.cols, 1,
              [&](std::int64_t begin, std::int64_t end) { run(args, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::Binary(const char* op, ElementwiseKernel kernel, const char* a_name,
                            const char* b_name, const char* y_name, Stream& stream, const Matrix& a,
                            const Matrix& b, const Matrix& y) {
  OpChecks check(op);
  check.OneOf(a_name, a.dtype, kOperandTypes).Matrix(a_name, a, a.dtype, a.rows, a.cols);
  check.Matrix(b_name, b, a.dtype, a.rows, a.cols).Matrix(y_name, y, a.dtype, a.rows, a.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ElementwiseArgs args = {a.data, b.data, y.data, a.stride, b.stride, y.stride, a.cols};
    const auto run = KernelsFor(kernels_, a.dtype).*kernel;
    ForRanges(a.rows, a.cols, 1,
              [&](std::int64_t begin, std::int64_t end) { run(args, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::ActivateBackward(const char* op, ElementwiseKernel kernel, Stream& stream,
                                      const Matrix& dy, const Matrix& x, const Matrix& dx,
                                      const Matrix& y) {
  OpChecks check(op);
  check.OneOf("dy", dy.dtype, kOperandTypes).Matrix("dy", dy, dy.dtype, dy.rows, dy.cols);
  check.Matrix("x", x, dy.dtype, dy.rows, dy.cols).Matrix("dx", dx, dy.dtype, dy.rows, dy.cols);
  if (y.data != nullptr) check.Matrix("y", y, dy.dtype, dy.rows, dy.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ElementwiseArgs args = {dy.data,   x.data,  dx.data, dy.stride, x.stride,
                                  dx.stride, dy.cols, y.data,  y.stride};
    const auto run = KernelsFor(kernels_, dy.dtype).*kernel;
    ForRanges(dy.rows, dy.cols, 1,
              [&](std::int64_t begin, std::int64_t end) { run(args, begin, end); });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::SwiGluForward(Stream& stream, const Matrix& gate_up, const Matrix& h) {
  OpChecks check("SwiGluForward");
  check.OneOf("h", h.dtype, kOperandTypes).Matrix("h", h, h.dtype, h.rows, h.cols);
  check.Matrix("gate_up", gate_up, h.dtype, h.rows, 2 * h.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ElementwiseArgs args = {gate_up.data, nullptr, h.data, gate_up.stride, 0,
                                  h.stride,     h.cols};
    const Kernels& kernels = KernelsFor(kernels_, h.dtype);
    ForRanges(h.rows, h.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.swiglu_forward(args, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::SwiGluBackward(Stream& stream, const Matrix& dh, const Matrix& gate_up,
                                    const Matrix& d_gate_up, const Matrix& h) {
  OpChecks check("SwiGluBackward");
  check.OneOf("dh", dh.dtype, kOperandTypes).Matrix("dh", dh, dh.dtype, dh.rows, dh.cols);
  check.Matrix("gate_up", gate_up, dh.dtype, dh.rows, 2 * dh.cols);
  check.Matrix("d_gate_up", d_gate_up, dh.dtype, dh.rows, 2 * dh.cols);
  if (h.data != nullptr) check.Matrix("h", h, dh.dtype, dh.rows, dh.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ElementwiseArgs args = {dh.data,   gate_up.data,   d_gate_up.data,
                                  dh.stride, gate_up.stride, d_gate_up.stride,
                                  dh.cols,   h.data,         h.stride};
    const Kernels& kernels = KernelsFor(kernels_, dh.dtype);
    ForRanges(dh.rows, dh.cols, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.swiglu_backward(args, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status CpuOps::SiluForward(Stream& stream, const Matrix& x, const Matrix& y) {
  return Unary("SiluForward", &Kernels::silu_forward, stream, x, y);
}
absl::Status CpuOps::SiluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                  const Matrix& dx, const Matrix& y) {
  return ActivateBackward("SiluBackward", &Kernels::silu_backward, stream, dy, x, dx, y);
}
absl::Status CpuOps::GeluForward(Stream& stream, const Matrix& x, const Matrix& y) {
  return Unary("GeluForward", &Kernels::gelu_forward, stream, x, y);
}
absl::Status CpuOps::GeluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                  const Matrix& dx, const Matrix& y) {
  return ActivateBackward("GeluBackward", &Kernels::gelu_backward, stream, dy, x, dx, y);
}
absl::Status CpuOps::Add(Stream& stream, const Matrix& a, const Matrix& b, const Matrix& y) {
  return Binary("Add", &Kernels::add, "a", "b", "y", stream, a, b, y);
}

absl::Status CpuOps::ColumnSum(Stream& stream, const Matrix& x, const Vector& out, bool accumulate,
                               std::span<std::byte> /*scratch*/) {
  OpChecks check("ColumnSum");
  check.OneOf("x", x.dtype, kOperandTypes).Matrix("x", x, x.dtype, x.rows, x.cols);
  check.OneOf("out", out.dtype, {SumType(x.dtype), x.dtype});
  check.Vector("out", out, out.dtype, x.cols);
  return Enqueue(stream, check.status(), [=, this] {
    const ColumnSumArgs args = {
        x.data, out.data, x.stride, x.rows, out.dtype == SumType(x.dtype), accumulate};
    const Kernels& kernels = KernelsFor(kernels_, x.dtype);
    ForRanges(x.cols, x.rows, kColumnGranularity,
              [&](std::int64_t begin, std::int64_t end) { kernels.column_sum(args, begin, end); });
    return absl::OkStatus();
  });
}

std::size_t CpuOps::ColumnSumScratchBytes(std::int64_t /*rows*/, std::int64_t /*cols*/) const {
  return 0;
}

}  // namespace fsdp::cpu

// Embedding, normalisation, activations and sums: one row, or one column, at a time.

#include <cstdint>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_ops_impl.h"

namespace fsdp {

absl::Status CudaOps::EmbeddingForward(Stream& stream, std::span<const std::int32_t> tokens,
                                       const Matrix& table, const Matrix& positions,
                                       std::int64_t seq, std::span<const std::int32_t> position_ids,
                                       const Matrix& out) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  OpChecks check("EmbeddingForward");
  check.OneOf("table", table.dtype, kFloats)
      .Matrix("table", table, table.dtype, table.rows, table.cols)
      .Matrix("out", out, table.dtype, rows, table.cols)
      .Positions("positions", positions, table.dtype, table.cols, seq, position_ids, rows);
  RETURN_IF_ERROR(check.status());
  Matrix rows_of_positions = positions;
  if (positions.empty()) rows_of_positions.data = nullptr;
  const std::int32_t* const ids = position_ids.empty() ? nullptr : position_ids.data();
  return Launched(kernels::EmbeddingForward(CudaStreamOf(stream), tokens.data(), table,
                                            rows_of_positions, seq, ids, out),
                  "EmbeddingForward");
}

absl::Status CudaOps::EmbeddingBackward(Stream& stream, std::span<const std::int32_t> tokens,
                                        const Matrix& dout, std::int64_t seq,
                                        std::span<const std::int32_t> position_ids,
                                        const Matrix& d_table, const Matrix& d_positions,
                                        bool accumulate) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  OpChecks check("EmbeddingBackward");
  check.OneOf("dout", dout.dtype, kFloats)
      .Matrix("dout", dout, dout.dtype, rows, dout.cols)
      .OneOf("d_table", d_table.dtype, {DType::kF32, dout.dtype})
      .Matrix("d_table", d_table, d_table.dtype, d_table.rows, dout.cols);
  if (!d_positions.empty()) {
    check.OneOf("d_positions", d_positions.dtype, {DType::kF32, dout.dtype});
  }
  check.Positions("d_positions", d_positions, d_positions.dtype, dout.cols, seq, position_ids,
                  rows);
  RETURN_IF_ERROR(check.status());
  if (dout.cols == 0) return absl::OkStatus();
  const cudaStream_t cuda_stream = CudaStreamOf(stream);
  RETURN_IF_ERROR(
      Launched(kernels::EmbeddingBackward(cuda_stream, tokens.data(), dout, d_table, accumulate),
               "EmbeddingBackward"));
  if (d_positions.empty()) return absl::OkStatus();
  if (!position_ids.empty()) {
    return Launched(
        kernels::EmbeddingBackward(cuda_stream, position_ids.data(), dout, d_positions, accumulate),
        "EmbeddingBackward of positions");
  }
  return Launched(kernels::PositionBackward(cuda_stream, dout, seq, d_positions, accumulate),
                  "PositionBackward");
}

absl::Status CudaOps::RmsNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                     const Vector& weight, double eps, const Matrix& sum,
                                     const Matrix& y, const Vector& rstd) {
  return NormForward("RmsNormForward", stream, x, delta, weight, nullptr, eps, sum, y, nullptr,
                     rstd);
}

absl::Status CudaOps::LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                       const Vector& weight, const Vector& bias, double eps,
                                       const Matrix& sum, const Matrix& y, const Vector& mean,
                                       const Vector& rstd) {
  return NormForward("LayerNormForward", stream, x, delta, weight, &bias, eps, sum, y, &mean, rstd);
}

absl::Status CudaOps::RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                      const Vector& weight, const Vector& rstd,
                                      const Matrix& residual, const Matrix& dx, const Matrix& y,
                                      const Vector& d_weight, bool accumulate,
                                      std::span<std::byte> scratch) {
  kernels::NormBackwardArgs args;
  args.dy = dy;
  args.x = x;
  args.weight = weight;
  args.rstd = rstd;
  args.residual = residual;
  args.dx = dx;
  args.y = y;
  args.d_weight = d_weight;
  args.accumulate = accumulate;
  return NormBackward("RmsNormBackward", stream, args, scratch);
}

absl::Status CudaOps::LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                        const Vector& weight, const Vector& bias,
                                        const Vector& mean, const Vector& rstd,
                                        const Matrix& residual, const Matrix& dx, const Matrix& y,
                                        const Vector& d_weight, const Vector& d_bias,
                                        bool accumulate, std::span<std::byte> scratch) {
  kernels::NormBackwardArgs args;
  args.layer = true;
  args.dy = dy;
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.mean = mean;
  args.rstd = rstd;
  args.residual = residual;
  args.dx = dx;
  args.y = y;
  args.d_weight = d_weight;
  args.d_bias = d_bias;
  args.accumulate = accumulate;
  return NormBackward("LayerNormBackward", stream, args, scratch);
}

std::size_t CudaOps::NormBackwardScratchBytes(std::int64_t tokens, std::int64_t dim) const {
  return kernels::NormBackwardScratchFloats(tokens, dim) * sizeof(float);
}

absl::Status CudaOps::NormForward(const char* op, Stream& stream, const Matrix& x,
                                  const Matrix& delta, const Vector& weight, const Vector* bias,
                                  double eps, const Matrix& sum, const Matrix& y,
                                  const Vector* mean, const Vector& rstd) {
  OpChecks check(op);
  check.OneOf("x", x.dtype, kFloats)
      .Matrix("x", x, x.dtype, x.rows, x.cols)
      .Matrix("y", y, x.dtype, x.rows, x.cols)
      .Vector("weight", weight, x.dtype, x.cols)
      .Vector("rstd", rstd, DType::kF32, x.rows);
  if (!delta.empty()) {
    check.Matrix("delta", delta, x.dtype, x.rows, x.cols)
        .Matrix("sum", sum, x.dtype, x.rows, x.cols);
  }
  if (bias != nullptr) {
    check.Vector("bias", *bias, x.dtype, x.cols).Vector("mean", *mean, DType::kF32, x.rows);
  }
  RETURN_IF_ERROR(check.status());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  kernels::NormForwardArgs args;
  args.x = x;
  if (!delta.empty()) {
    args.delta = delta;
    args.sum = sum;
  }
  args.y = y;
  args.weight = weight;
  if (bias != nullptr) {
    args.bias = *bias;
    args.mean = *mean;
  }
  args.layer = bias != nullptr;
  args.rstd = rstd;
  args.eps = static_cast<float>(eps);
  return Launched(kernels::NormForward(CudaStreamOf(stream), args), op);
}

absl::Status CudaOps::NormBackward(const char* op, Stream& stream, kernels::NormBackwardArgs args,
                                   std::span<std::byte> scratch) const {
  const Matrix& x = args.x;
  OpChecks check(op);
  check.OneOf("x", x.dtype, kFloats)
      .Matrix("x", x, x.dtype, x.rows, x.cols)
      .Matrix("dy", args.dy, x.dtype, x.rows, x.cols)
      .Matrix("dx", args.dx, x.dtype, x.rows, x.cols)
      .Vector("weight", args.weight, x.dtype, x.cols)
      .Vector("rstd", args.rstd, DType::kF32, x.rows)
      .OneOf("d_weight", args.d_weight.dtype, {DType::kF32, x.dtype})
      .Vector("d_weight", args.d_weight, args.d_weight.dtype, x.cols)
      .Scratch(scratch, NormBackwardScratchBytes(x.rows, x.cols));
  if (!args.residual.empty()) check.Matrix("residual", args.residual, x.dtype, x.rows, x.cols);
  if (!args.y.empty()) check.Matrix("y", args.y, x.dtype, x.rows, x.cols);
  if (args.layer) {
    check.Vector("mean", args.mean, DType::kF32, x.rows)
        .OneOf("d_bias", args.d_bias.dtype, {DType::kF32, x.dtype})
        .Vector("d_bias", args.d_bias, args.d_bias.dtype, x.cols);
    if (!args.y.empty()) check.Vector("bias", args.bias, x.dtype, x.cols);
  }
  RETURN_IF_ERROR(check.status());
  if (x.cols == 0) return absl::OkStatus();
  if (args.residual.empty()) args.residual = Matrix{};
  if (args.y.empty()) args.y = Matrix{};
  args.scratch = reinterpret_cast<float*>(scratch.data());
  return Launched(kernels::NormBackward(CudaStreamOf(stream), args), op);
}

absl::Status CudaOps::SwiGluForward(Stream& stream, const Matrix& gate_up, const Matrix& h) {
  OpChecks check("SwiGluForward");
  check.OneOf("h", h.dtype, kFloats)
      .Matrix("h", h, h.dtype, h.rows, h.cols)
      .Matrix("gate_up", gate_up, h.dtype, h.rows, 2 * h.cols);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::SwiGluForward(CudaStreamOf(stream), gate_up, h), "SwiGluForward");
}

absl::Status CudaOps::SwiGluBackward(Stream& stream, const Matrix& dh, const Matrix& gate_up,
                                     const Matrix& d_gate_up, const Matrix& h) {
  OpChecks check("SwiGluBackward");
  check.OneOf("dh", dh.dtype, kFloats)
      .Matrix("dh", dh, dh.dtype, dh.rows, dh.cols)
      .Matrix("gate_up", gate_up, dh.dtype, dh.rows, 2 * dh.cols)
      .Matrix("d_gate_up", d_gate_up, dh.dtype, dh.rows, 2 * dh.cols);
  if (!h.empty()) check.Matrix("h", h, dh.dtype, dh.rows, dh.cols);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::SwiGluBackward(CudaStreamOf(stream), dh, gate_up, d_gate_up, h),
                  "SwiGluBackward");
}

absl::Status CudaOps::SiluForward(Stream& stream, const Matrix& x, const Matrix& y) {
  return Activate("SiluForward", kernels::Activation::kSilu, stream, x, y);
}

absl::Status CudaOps::SiluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                   const Matrix& dx, const Matrix& y) {
  return ActivateBackward("SiluBackward", kernels::Activation::kSilu, stream, dy, x, dx, y);
}

absl::Status CudaOps::GeluForward(Stream& stream, const Matrix& x, const Matrix& y) {
  return Activate("GeluForward", kernels::Activation::kGelu, stream, x, y);
}

absl::Status CudaOps::GeluBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                   const Matrix& dx, const Matrix& y) {
  return ActivateBackward("GeluBackward", kernels::Activation::kGelu, stream, dy, x, dx, y);
}

absl::Status CudaOps::Activate(const char* op, kernels::Activation kind, Stream& stream,
                               const Matrix& x, const Matrix& y) {
  OpChecks check(op);
  check.OneOf("x", x.dtype, kFloats)
      .Matrix("x", x, x.dtype, x.rows, x.cols)
      .Matrix("y", y, x.dtype, x.rows, x.cols);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::ActivationForward(CudaStreamOf(stream), kind, x, y), op);
}

absl::Status CudaOps::ActivateBackward(const char* op, kernels::Activation kind, Stream& stream,
                                       const Matrix& dy, const Matrix& x, const Matrix& dx,
                                       const Matrix& y) {
  OpChecks check(op);
  check.OneOf("dy", dy.dtype, kFloats)
      .Matrix("dy", dy, dy.dtype, dy.rows, dy.cols)
      .Matrix("x", x, dy.dtype, dy.rows, dy.cols)
      .Matrix("dx", dx, dy.dtype, dy.rows, dy.cols);
  if (!y.empty()) check.Matrix("y", y, dy.dtype, dy.rows, dy.cols);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::ActivationBackward(CudaStreamOf(stream), kind, dy, x, dx, y), op);
}

absl::Status CudaOps::ColumnSum(Stream& stream, const Matrix& x, const Vector& out, bool accumulate,
                                std::span<std::byte> scratch) {
  OpChecks check("ColumnSum");
  check.OneOf("x", x.dtype, kFloats)
      .Matrix("x", x, x.dtype, x.rows, x.cols)
      .OneOf("out", out.dtype, {DType::kF32, x.dtype})
      .Vector("out", out, out.dtype, x.cols)
      .Scratch(scratch, ColumnSumScratchBytes(x.rows, x.cols));
  RETURN_IF_ERROR(check.status());
  if (x.cols == 0) return absl::OkStatus();
  return Launched(kernels::ColumnSum(CudaStreamOf(stream), x, out, accumulate,
                                     reinterpret_cast<float*>(scratch.data())),
                  "ColumnSum");
}

std::size_t CudaOps::ColumnSumScratchBytes(std::int64_t rows, std::int64_t cols) const {
  return kernels::ColumnSumScratchFloats(rows, cols) * sizeof(float);
}

absl::Status CudaOps::Add(Stream& stream, const Matrix& a, const Matrix& b, const Matrix& y) {
  OpChecks check("Add");
  check.OneOf("y", y.dtype, kFloats)
      .Matrix("y", y, y.dtype, y.rows, y.cols)
      .Matrix("a", a, y.dtype, y.rows, y.cols)
      .Matrix("b", b, y.dtype, y.rows, y.cols);
  RETURN_IF_ERROR(check.status());
  return Launched(kernels::Add(CudaStreamOf(stream), a, b, y), "Add");
}

}  // namespace fsdp

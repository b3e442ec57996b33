#include "worker/device/cuda/cuda_ops.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/adamw.h"
#include "worker/device/cuda/attention.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/matmul.h"
#include "worker/device/op_checks.h"

namespace fsdp {
namespace {

constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBf16};

class CudaOps final : public Ops {
 public:
  CudaOps(std::unique_ptr<MatMulPlanner> matmuls, std::unique_ptr<CudaAttention> attention)
      : matmuls_(std::move(matmuls)), attention_(std::move(attention)) {}

  absl::Status MatMul(Stream& stream, const Matrix& a, Transpose trans_a, const Matrix& b,
                      Transpose trans_b, const Vector& bias, const Matrix& out,
                      bool accumulate) override {
    const bool ta = trans_a == Transpose::kYes;
    const bool tb = trans_b == Transpose::kYes;
    const std::int64_t m = ta ? a.cols : a.rows;
    const std::int64_t k = ta ? a.rows : a.cols;
    const std::int64_t n = tb ? b.rows : b.cols;
    OpChecks check("MatMul");
    check.OneOf("a", a.dtype, kFloats)
        .Matrix("a", a, a.dtype, a.rows, a.cols)
        .Matrix("b", b, a.dtype, tb ? n : k, tb ? k : n)
        .OneOf("out", out.dtype, {DType::kF32, a.dtype})
        .Matrix("out", out, out.dtype, m, n);
    if (!bias.empty()) check.Vector("bias", bias, a.dtype, out.cols);
    RETURN_IF_ERROR(check.status());
    if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
    const cudaStream_t cuda_stream = CudaStreamOf(stream);
    // The library's epilogue takes a bias of out's dtype only.
    const bool fused_bias = !bias.empty() && bias.dtype == out.dtype && k > 0;
    if (k > 0) {
      RETURN_IF_ERROR(matmuls_->Run(cuda_stream, a, trans_a, b, trans_b,
                                    fused_bias ? bias.data : nullptr, out, accumulate));
    } else if (!accumulate) {
      const std::size_t element = SizeOf(out.dtype);
      FSDP_RETURN_IF_CUDA_ERROR(cudaMemset2DAsync(out.data, out.stride * element, 0,
                                                  out.cols * element, out.rows, cuda_stream));
    }
    if (bias.empty() || fused_bias) return absl::OkStatus();
    return Launched(kernels::AddBias(cuda_stream, bias, out), "AddBias");
  }

  absl::Status EmbeddingForward(Stream& stream, std::span<const std::int32_t> tokens,
                                const Matrix& table, const Matrix& positions, std::int64_t seq,
                                const Matrix& out) override {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    OpChecks check("EmbeddingForward");
    check.OneOf("table", table.dtype, kFloats)
        .Matrix("table", table, table.dtype, table.rows, table.cols)
        .Matrix("out", out, table.dtype, rows, table.cols);
    if (!positions.empty()) {
      check
          .That(seq > 0 && seq <= positions.rows,
                absl::StrFormat("seq is %d, must be in [1, %d positions]", seq, positions.rows))
          .Matrix("positions", positions, table.dtype, positions.rows, table.cols);
    }
    RETURN_IF_ERROR(check.status());
    Matrix rows_of_positions = positions;
    if (positions.empty()) rows_of_positions.data = nullptr;
    return Launched(kernels::EmbeddingForward(CudaStreamOf(stream), tokens.data(), table,
                                              rows_of_positions, seq, out),
                    "EmbeddingForward");
  }

  absl::Status EmbeddingBackward(Stream& stream, std::span<const std::int32_t> tokens,
                                 const Matrix& dout, std::int64_t seq, const Matrix& d_table,
                                 const Matrix& d_positions, bool accumulate) override {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    OpChecks check("EmbeddingBackward");
    check.OneOf("dout", dout.dtype, kFloats)
        .Matrix("dout", dout, dout.dtype, rows, dout.cols)
        .OneOf("d_table", d_table.dtype, {DType::kF32, dout.dtype})
        .Matrix("d_table", d_table, d_table.dtype, d_table.rows, dout.cols);
    if (!d_positions.empty()) {
      check
          .That(seq > 0 && seq <= d_positions.rows,
                absl::StrFormat("seq is %d, must be in [1, %d positions]", seq, d_positions.rows))
          .OneOf("d_positions", d_positions.dtype, {DType::kF32, dout.dtype})
          .Matrix("d_positions", d_positions, d_positions.dtype, d_positions.rows, dout.cols);
    }
    RETURN_IF_ERROR(check.status());
    if (dout.cols == 0) return absl::OkStatus();
    const cudaStream_t cuda_stream = CudaStreamOf(stream);
    RETURN_IF_ERROR(
        Launched(kernels::EmbeddingBackward(cuda_stream, tokens.data(), dout, d_table, accumulate),
                 "EmbeddingBackward"));
    if (d_positions.empty()) return absl::OkStatus();
    return Launched(kernels::PositionBackward(cuda_stream, dout, seq, d_positions, accumulate),
                    "PositionBackward");
  }

  absl::Status RmsNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                              const Vector& weight, double eps, const Matrix& sum, const Matrix& y,
                              const Vector& rstd) override {
    return NormForward("RmsNormForward", stream, x, delta, weight, nullptr, eps, sum, y, nullptr,
                       rstd);
  }
  absl::Status LayerNormForward(Stream& stream, const Matrix& x, const Matrix& delta,
                                const Vector& weight, const Vector& bias, double eps,
                                const Matrix& sum, const Matrix& y, const Vector& mean,
                                const Vector& rstd) override {
    return NormForward("LayerNormForward", stream, x, delta, weight, &bias, eps, sum, y, &mean,
                       rstd);
  }
  absl::Status RmsNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                               const Vector& weight, const Vector& rstd, const Matrix& residual,
                               const Matrix& dx, const Matrix& y, const Vector& d_weight,
                               bool accumulate, std::span<std::byte> scratch) override {
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
  absl::Status LayerNormBackward(Stream& stream, const Matrix& dy, const Matrix& x,
                                 const Vector& weight, const Vector& bias, const Vector& mean,
                                 const Vector& rstd, const Matrix& residual, const Matrix& dx,
                                 const Matrix& y, const Vector& d_weight, const Vector& d_bias,
                                 bool accumulate, std::span<std::byte> scratch) override {
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
  std::size_t NormBackwardScratchBytes(std::int64_t tokens, std::int64_t dim) const override {
    return kernels::NormBackwardScratchFloats(tokens, dim) * sizeof(float);
  }

  absl::Status Rope(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                    const Matrix& cos, const Matrix& sin, bool inverse) override {
    OpChecks check("Rope");
    check.OneOf("qkv", qkv.dtype, kFloats)
        .Heads("qkv", qkv, shape)
        .That(shape.head_dim % 2 == 0,
              absl::StrFormat("head_dim is %d, must be even", shape.head_dim))
        .Matrix("cos", cos, DType::kF32, shape.seq, shape.head_dim / 2)
        .Matrix("sin", sin, DType::kF32, shape.seq, shape.head_dim / 2);
    RETURN_IF_ERROR(check.status());
    if (qkv.rows == 0) return absl::OkStatus();
    return Launched(kernels::Rope(CudaStreamOf(stream), qkv, shape.num_heads + shape.num_kv_heads,
                                  shape.head_dim, shape.seq, cos, sin, inverse),
                    "Rope");
  }

  absl::Status AttentionForward(Stream& stream, const Matrix& qkv, const AttentionShape& shape,
                                const Matrix& out, const Vector& lse,
                                std::span<std::byte> scratch) override {
    OpChecks check("AttentionForward");
    CheckAttention(check, qkv, shape, out, lse);
    RETURN_IF_ERROR(check.status());
    if (qkv.rows == 0) return absl::OkStatus();
    check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, false));
    RETURN_IF_ERROR(check.status());
    return attention_->Forward(CudaStreamOf(stream), qkv, shape, out, lse, scratch);
  }
  absl::Status AttentionBackward(Stream& stream, const Matrix& d_out, const Matrix& qkv,
                                 const Matrix& out, const Vector& lse, const AttentionShape& shape,
                                 const Matrix& d_qkv, std::span<std::byte> scratch) override {
    OpChecks check("AttentionBackward");
    CheckAttention(check, qkv, shape, out, lse);
    check.Matrix("d_out", d_out, qkv.dtype, out.rows, out.cols)
        .Matrix("d_qkv", d_qkv, qkv.dtype, qkv.rows, qkv.cols);
    RETURN_IF_ERROR(check.status());
    if (qkv.rows == 0) return absl::OkStatus();
    check.Scratch(scratch, AttentionScratchBytes(shape, qkv.dtype, true));
    RETURN_IF_ERROR(check.status());
    return attention_->Backward(CudaStreamOf(stream), d_out, qkv, out, lse, shape, d_qkv, scratch);
  }
  std::size_t AttentionScratchBytes(const AttentionShape& shape, DType dtype,
                                    bool backward) const override {
    return attention_->ScratchBytes(shape, dtype, backward);
  }
  absl::StatusOr<AttentionKernels> ChosenAttention(const AttentionShape& shape,
                                                   DType dtype) const override {
    AttentionKernels kernels;
    ASSIGN_OR_RETURN(kernels.forward, attention_->KernelName(shape, dtype, /*backward=*/false));
    ASSIGN_OR_RETURN(kernels.backward, attention_->KernelName(shape, dtype, /*backward=*/true));
    return kernels;
  }

  absl::Status SwiGluForward(Stream& stream, const Matrix& gate_up, const Matrix& h) override {
    OpChecks check("SwiGluForward");
    check.OneOf("h", h.dtype, kFloats)
        .Matrix("h", h, h.dtype, h.rows, h.cols)
        .Matrix("gate_up", gate_up, h.dtype, h.rows, 2 * h.cols);
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::SwiGluForward(CudaStreamOf(stream), gate_up, h), "SwiGluForward");
  }
  absl::Status SwiGluBackward(Stream& stream, const Matrix& dh, const Matrix& gate_up,
                              const Matrix& d_gate_up, const Matrix& h) override {
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
  absl::Status SiluForward(Stream& stream, const Matrix& x, const Matrix& y) override {
    return Activate("SiluForward", kernels::Activation::kSilu, stream, x, y);
  }
  absl::Status SiluBackward(Stream& stream, const Matrix& dy, const Matrix& x, const Matrix& dx,
                            const Matrix& y) override {
    return ActivateBackward("SiluBackward", kernels::Activation::kSilu, stream, dy, x, dx, y);
  }
  absl::Status GeluForward(Stream& stream, const Matrix& x, const Matrix& y) override {
    return Activate("GeluForward", kernels::Activation::kGelu, stream, x, y);
  }
  absl::Status GeluBackward(Stream& stream, const Matrix& dy, const Matrix& x, const Matrix& dx,
                            const Matrix& y) override {
    return ActivateBackward("GeluBackward", kernels::Activation::kGelu, stream, dy, x, dx, y);
  }

  absl::Status ColumnSum(Stream& stream, const Matrix& x, const Vector& out, bool accumulate,
                         std::span<std::byte> scratch) override {
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
  std::size_t ColumnSumScratchBytes(std::int64_t rows, std::int64_t cols) const override {
    return kernels::ColumnSumScratchFloats(rows, cols) * sizeof(float);
  }

  absl::Status Add(Stream& stream, const Matrix& a, const Matrix& b, const Matrix& y) override {
    OpChecks check("Add");
    check.OneOf("y", y.dtype, kFloats)
        .Matrix("y", y, y.dtype, y.rows, y.cols)
        .Matrix("a", a, y.dtype, y.rows, y.cols)
        .Matrix("b", b, y.dtype, y.rows, y.cols);
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::Add(CudaStreamOf(stream), a, b, y), "Add");
  }

  absl::Status CrossEntropy(Stream& stream, const Matrix& logits,
                            std::span<const std::int32_t> targets, StepStats* stats, bool loss_only,
                            std::span<std::byte> scratch) override {
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
  std::size_t CrossEntropyScratchBytes(std::int64_t tokens, std::int64_t) const override {
    return static_cast<std::size_t>(tokens) * sizeof(double);
  }

  absl::Status FillInitial(Stream& stream, const InitialDraw& draw, std::int64_t first,
                           const Vector& out) override {
    OpChecks check("FillInitial");
    check.OneOf("out", out.dtype, {DType::kF32, DType::kF64})
        .Vector("out", out, out.dtype, out.size)
        .That(first >= 0, absl::StrFormat("first is %d, must not be negative", first));
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::FillInitial(CudaStreamOf(stream), draw, first, out), "FillInitial");
  }

  absl::Status Accumulate(Stream& stream, const Vector& from, const Vector& to) override {
    OpChecks check("Accumulate");
    check.OneOf("from", from.dtype, kFloats)
        .Vector("from", from, from.dtype, from.size)
        .Vector("to", to, DType::kF32, from.size);
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::Accumulate(CudaStreamOf(stream), from, to), "Accumulate");
  }
  absl::Status Cast(Stream& stream, const Vector& from, const Vector& to) override {
    OpChecks check("Cast");
    check.OneOf("from", from.dtype, kFloats)
        .OneOf("to", to.dtype, kFloats)
        .Vector("from", from, from.dtype, from.size)
        .Vector("to", to, to.dtype, from.size);
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::Cast(CudaStreamOf(stream), from, to), "Cast");
  }

  absl::Status GradStats(Stream& stream, const Vector& grad, StepStats* stats,
                         std::span<std::byte> scratch) override {
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
  std::size_t GradStatsScratchBytes(std::int64_t size) const override {
    return static_cast<std::size_t>(kernels::GradStatsBlocks(size)) * 2 * sizeof(double);
  }
  absl::Status FinishStats(Stream& stream, const StepStats* stats, float max_norm,
                           UpdateScalars* scalars) override {
    OpChecks check("FinishStats");
    check.That(stats != nullptr, "stats is null").That(scalars != nullptr, "scalars is null");
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::FinishStats(CudaStreamOf(stream), stats, max_norm, scalars),
                    "FinishStats");
  }

  absl::Status AdamW(Stream& stream, const Vector& master, const Vector& m, const Vector& v,
                     const Vector& grad, std::span<const DecaySegment> segments,
                     const AdamWOptions& options, const StepScalars* step,
                     const UpdateScalars* scalars) override {
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
  absl::Status AdamWSplit(Stream& stream, const Vector& compute, const Vector& remainder,
                          const Vector& m, const Vector& v, const Vector& grad,
                          std::span<const DecaySegment> segments, const AdamWOptions& options,
                          const StepScalars* step, const UpdateScalars* scalars) override {
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

  absl::Status SplitMaster(Stream& stream, const Vector& master, const Vector& compute,
                           const Vector& remainder) override {
    RETURN_IF_ERROR(CheckSplit("SplitMaster", master, compute, remainder));
    return Launched(kernels::SplitMaster(CudaStreamOf(stream), master, compute, remainder),
                    "SplitMaster");
  }
  absl::Status JoinMaster(Stream& stream, const Vector& compute, const Vector& remainder,
                          const Vector& master) override {
    RETURN_IF_ERROR(CheckSplit("JoinMaster", master, compute, remainder));
    return Launched(kernels::JoinMaster(CudaStreamOf(stream), compute, remainder, master),
                    "JoinMaster");
  }

 private:
  static absl::Status Launched(cudaError_t error, const char* kernel) {
    return CudaToStatus(error, kernel);
  }

  static absl::Status NormForward(const char* op, Stream& stream, const Matrix& x,
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

  // `args` as the caller gave them: checks, then adds the scratch.
  absl::Status NormBackward(const char* op, Stream& stream, kernels::NormBackwardArgs args,
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

  static void CheckAttention(OpChecks& check, const Matrix& qkv, const AttentionShape& shape,
                             const Matrix& out, const Vector& lse) {
    check.OneOf("qkv", qkv.dtype, kFloats)
        .Heads("qkv", qkv, shape)
        .That(shape.head_dim <= 256,
              absl::StrFormat("head_dim is %d, must be at most 256", shape.head_dim))
        .Matrix("out", out, qkv.dtype, qkv.rows, shape.num_heads * shape.head_dim)
        .Vector("lse", lse, DType::kF32, shape.batch * shape.num_heads * shape.seq);
  }

  static absl::Status Activate(const char* op, kernels::Activation kind, Stream& stream,
                               const Matrix& x, const Matrix& y) {
    OpChecks check(op);
    check.OneOf("x", x.dtype, kFloats)
        .Matrix("x", x, x.dtype, x.rows, x.cols)
        .Matrix("y", y, x.dtype, x.rows, x.cols);
    RETURN_IF_ERROR(check.status());
    return Launched(kernels::ActivationForward(CudaStreamOf(stream), kind, x, y), op);
  }
  static absl::Status ActivateBackward(const char* op, kernels::Activation kind, Stream& stream,
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

  static absl::Status CheckSplit(const char* op, const Vector& master, const Vector& compute,
                                 const Vector& remainder) {
    OpChecks check(op);
    check.Vector("master", master, DType::kF32, master.size)
        .Vector("compute", compute, DType::kBf16, master.size)
        .Vector("remainder", remainder, DType::kU16, master.size);
    return check.status();
  }

  std::unique_ptr<MatMulPlanner> matmuls_;
  std::unique_ptr<CudaAttention> attention_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ops>> CreateCudaOps(const CudaOpsContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<MatMulPlanner> matmuls,
                   MatMulPlanner::Create({.workspace = context.matmul_workspace,
                                          .workspace_stream = context.compute_stream,
                                          .time_algorithms = !context.deterministic,
                                          .cache_directory = context.cache_directory,
                                          .device = context.device}));
  ASSIGN_OR_RETURN(std::unique_ptr<CudaAttention> attention,
                   CudaAttention::Create(context.attention, context.deterministic));
  return std::make_unique<CudaOps>(std::move(matmuls), std::move(attention));
}

}  // namespace fsdp

#include "worker/device/cpu/cpu_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>

#include "worker/device/cpu/cpu_matmul.h"

namespace fsdp::cpu {
namespace {

using i64 = std::int64_t;

// Queries per block: a block's scores (and in backward their gradients) should stay in a core's
// second-level cache.
constexpr i64 kMaxQueryRows = 64;
constexpr i64 kMinQueryRows = 16;
constexpr i64 kScoreElements = i64{64} * 2048;

i64 QueryRows(i64 seq) {
  const i64 fit = kScoreElements / std::max<i64>(seq, 1) / kMinQueryRows * kMinQueryRows;
  return std::clamp(fit, kMinQueryRows, kMaxQueryRows);
}

// Sums (f32 or f64) that one thread needs; bf16 also needs widened copies of its operands.
i64 ScratchElements(const AttentionShape& shape, bool widen, bool backward) {
  const i64 rows = QueryRows(shape.seq);
  const i64 head = shape.seq * shape.head_dim;
  const i64 block = rows * shape.head_dim;
  i64 elements = rows * shape.seq + rows + block;  // scores, row sums, output block
  if (backward) elements += rows * shape.seq;      // score gradients
  if (widen) elements += 2 * head + block;         // k, v, q block
  if (widen && backward) elements += 2 * head + 2 * block;
  return (elements + 63) / 64 * 64;
}

template <typename S>
struct View {
  S* data;
  i64 stride;
  [[nodiscard]] View Skip(i64 rows) const { return {data + rows * stride, stride}; }
};

// One thread's part of the scratch, handed out piece by piece.
template <typename S>
class Scratch {
 public:
  Scratch(std::span<std::byte> all, int slot, i64 elements)
      : next_(reinterpret_cast<S*>(all.data()) + slot * elements) {}
  S* Take(i64 elements) {
    S* piece = next_;
    next_ += elements;
    return piece;
  }

 private:
  S* next_;
};

// What forward and backward share. S is the type of sums: float or double.
template <typename S>
class Attention {
 public:
  Attention(const KernelSet& set, ThreadPool& pool, DType dtype, const AttentionShape& shape,
            std::span<std::byte> scratch)
      : set_(set),
        kernels_(KernelsFor(set, dtype)),
        pool_(pool),
        shape_(shape),
        scratch_(scratch),
        dtype_(dtype),
        widen_(dtype == DType::kBf16),
        dim_(shape.head_dim),
        seq_(shape.seq),
        block_(QueryRows(shape.seq)),
        group_(shape.num_heads / shape.num_kv_heads),
        scale_(shape.scale != 0 ? static_cast<S>(shape.scale)
                                : 1 / std::sqrt(static_cast<S>(shape.head_dim))) {}

  absl::Status Forward(const Matrix& qkv, const Matrix& out, const Vector& lse);
  absl::Status Backward(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                        const Vector& lse, const Matrix& d_qkv);

 private:
  absl::Status ForwardHead(const Matrix& qkv, const Matrix& out, S* lse, i64 batch, i64 head,
                           Scratch<S> scratch);
  absl::Status BackwardGroup(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                             const S* lse, const Matrix& d_qkv, i64 batch, i64 kv_head,
                             Scratch<S> scratch);
  template <typename F>
  absl::Status ForEach(i64 tasks, bool backward, F run);

  // Elements of `x` from row `row` and column `col` on.
  [[nodiscard]] void* At(const Matrix& x, i64 row, i64 col) const {
    return static_cast<std::byte*>(x.data) +
           (row * x.stride + col) * static_cast<i64>(SizeOf(dtype_));
  }
  // The same as sums: in place, or widened into `copy`.
  View<S> Read(const Matrix& x, i64 row, i64 col, i64 rows, S* copy) const {
    if (!widen_) return {static_cast<S*>(At(x, row, col)), x.stride};
    kernels_.to_sum({At(x, row, col), copy, x.stride, dim_, dim_, nullptr}, 0, rows);
    return {copy, dim_};
  }
  void Write(View<S> from, const Matrix& x, i64 row, i64 col, i64 rows, const S* row_scale) const {
    kernels_.from_sum({from.data, At(x, row, col), from.stride, x.stride, dim_, row_scale}, 0,
                      rows);
  }
  absl::Status Gemm(Transpose ta, Transpose tb, i64 m, i64 n, i64 k, S alpha, View<S> a, View<S> b,
                    S beta, View<S> c) const {
    return GemmSerial(set_, ta, tb, m, n, k, alpha, a.data, a.stride, b.data, b.stride, beta,
                      c.data, c.stride);
  }
  [[nodiscard]] i64 Width(i64 query, i64 rows) const { return shape_.causal ? query + rows : seq_; }
  [[nodiscard]] i64 FirstVisible(i64 query) const { return shape_.causal ? query + 1 : seq_; }
  [[nodiscard]] i64 KeyColumn(i64 kv_head) const { return (shape_.num_heads + kv_head) * dim_; }
  [[nodiscard]] i64 ValueColumn(i64 kv_head) const {
    return (shape_.num_heads + shape_.num_kv_heads + kv_head) * dim_;
  }

  const KernelSet& set_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const AttentionShape& shape_;
  std::span<std::byte> scratch_;
  const DType dtype_;
  const bool widen_;
  const i64 dim_, seq_, block_, group_;
  const S scale_;
};

template <typename S>
template <typename F>
absl::Status Attention<S>::ForEach(i64 tasks, bool backward, F run) {
  const i64 elements = ScratchElements(shape_, widen_, backward);
  std::mutex mutex;
  absl::Status first_error;
  auto task = [&](i64 index, int slot) {
    const absl::Status status = run(index, Scratch<S>(scratch_, slot, elements));
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex);
    first_error.Update(status);
  };
  pool_.ParallelFor(tasks, task);
  return first_error;
}

template <typename S>
absl::Status Attention<S>::Forward(const Matrix& qkv, const Matrix& out, const Vector& lse) {
  return ForEach(shape_.batch * shape_.num_heads, false, [&](i64 task, Scratch<S> scratch) {
    return ForwardHead(qkv, out, static_cast<S*>(lse.data) + task * seq_, task / shape_.num_heads,
                       task % shape_.num_heads, scratch);
  });
}

template <typename S>
absl::Status Attention<S>::ForwardHead(const Matrix& qkv, const Matrix& out, S* lse, i64 batch,
                                       i64 head, Scratch<S> scratch) {
  const View<S> scores = {scratch.Take(block_ * seq_), seq_};
  S* const inverse_sum = scratch.Take(block_);
  const View<S> sum = {scratch.Take(block_ * dim_), dim_};
  S* const q_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  S* const k_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  S* const v_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  const i64 first = batch * seq_;
  const View<S> k = Read(qkv, first, KeyColumn(head / group_), seq_, k_copy);
  const View<S> v = Read(qkv, first, ValueColumn(head / group_), seq_, v_copy);

  for (i64 query = 0; query < seq_; query += block_) {
    const i64 rows = std::min(block_, seq_ - query);
    const i64 width = Width(query, rows);
    const View<S> q = Read(qkv, first + query, head * dim_, rows, q_copy);
    absl::Status status =
        Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, scale_, q, k, 0, scores);
    kernels_.softmax(
        {scores.data, inverse_sum, lse + query, scores.stride, rows, width, FirstVisible(query)});
    // Keys before the block (causal), or all; then the block's own triangle.
    const i64 before = shape_.causal ? query : seq_;
    if (before == 0) {
      std::fill_n(sum.data, rows * dim_, S{0});
    } else {
      status.Update(Gemm(Transpose::kNo, Transpose::kNo, rows, dim_, before, 1, scores, v, 0, sum));
    }
    if (shape_.causal) {
      kernels_.diagonal({scores.data + query, v.Skip(query).data, sum.data, scores.stride, v.stride,
                         sum.stride, rows, dim_});
    }
    if (!status.ok()) return status;
    Write(sum, out, first + query, head * dim_, rows, inverse_sum);
  }
  return absl::OkStatus();
}

template <typename S>
absl::Status Attention<S>::Backward(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                                    const Vector& lse, const Matrix& d_qkv) {
  return ForEach(shape_.batch * shape_.num_kv_heads, true, [&](i64 task, Scratch<S> scratch) {
    return BackwardGroup(d_out, qkv, out, static_cast<const S*>(lse.data), d_qkv,
                         task / shape_.num_kv_heads, task % shape_.num_kv_heads, scratch);
  });
}

// With p = exp(scale q k - lse), dp = d_out v, delta = d_out . out:  ds = scale p (dp - delta),
// dq = ds k,  dk = ds^T q,  dv = p^T d_out, the last two summed over the heads of the group.
template <typename S>
absl::Status Attention<S>::BackwardGroup(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                                         const S* lse, const Matrix& d_qkv, i64 batch, i64 kv_head,
                                         Scratch<S> scratch) {
  const View<S> scores = {scratch.Take(block_ * seq_), seq_};
  const View<S> d_scores = {scratch.Take(block_ * seq_), seq_};
  S* const delta = scratch.Take(block_);
  S* const q_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  S* const d_out_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  S* const k_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  S* const v_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  const i64 first = batch * seq_;
  const i64 k_col = KeyColumn(kv_head);
  const i64 v_col = ValueColumn(kv_head);
  const View<S> k = Read(qkv, first, k_col, seq_, k_copy);
  const View<S> v = Read(qkv, first, v_col, seq_, v_copy);
  const auto output = [&](i64 row, i64 col, i64 rows) -> View<S> {
    if (widen_) return {scratch.Take(rows * dim_), dim_};
    return {static_cast<S*>(At(d_qkv, row, col)), d_qkv.stride};
  };
  const View<S> dk = output(first, k_col, seq_);
  const View<S> dv = output(first, v_col, seq_);
  S* const dq_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  for (i64 row = 0; row < seq_; ++row) {
    std::fill_n(dk.Skip(row).data, dim_, S{0});
    std::fill_n(dv.Skip(row).data, dim_, S{0});
  }

  for (i64 head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
    const S* const head_lse = lse + (batch * shape_.num_heads + head) * seq_;
    for (i64 query = 0; query < seq_; query += block_) {
      const i64 rows = std::min(block_, seq_ - query);
      const i64 width = Width(query, rows);
      const i64 row = first + query;
      const View<S> q = Read(qkv, row, head * dim_, rows, q_copy);
      const View<S> d = Read(d_out, row, head * dim_, rows, d_out_copy);
      kernels_.row_dot({At(d_out, row, head * dim_), At(out, row, head * dim_), delta, d_out.stride,
                        out.stride, 0, dim_},
                       0, rows);
      absl::Status status =
          Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, scale_, q, k, 0, scores);
      status.Update(Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, 1, d, v, 0, d_scores));
      kernels_.softmax_backward({scores.data, d_scores.data, head_lse + query, delta, scores.stride,
                                 rows, width, FirstVisible(query), static_cast<double>(scale_)});
      const View<S> dq = widen_
                             ? View<S>{dq_copy, dim_}
                             : View<S>{static_cast<S*>(At(d_qkv, row, head * dim_)), d_qkv.stride};
      status.Update(Gemm(Transpose::kNo, Transpose::kNo, rows, dim_, width, 1, d_scores, k, 0, dq));
      status.Update(
          Gemm(Transpose::kYes, Transpose::kNo, width, dim_, rows, 1, d_scores, q, 1, dk));
      status.Update(Gemm(Transpose::kYes, Transpose::kNo, width, dim_, rows, 1, scores, d, 1, dv));
      if (!status.ok()) return status;
      if (widen_) Write(dq, d_qkv, row, head * dim_, rows, nullptr);
    }
  }
  if (widen_) {
    Write(dk, d_qkv, first, k_col, seq_, nullptr);
    Write(dv, d_qkv, first, v_col, seq_, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace

std::size_t CpuAttentionScratchBytes(const AttentionShape& shape, DType dtype, bool backward,
                                     int num_threads) {
  const i64 elements = ScratchElements(shape, dtype == DType::kBf16, backward);
  return static_cast<std::size_t>(elements * num_threads) *
         (dtype == DType::kF64 ? sizeof(double) : sizeof(float));
}

absl::Status CpuAttentionForward(const KernelSet& kernels, ThreadPool& pool, const Matrix& qkv,
                                 const AttentionShape& shape, const Matrix& out, const Vector& lse,
                                 std::span<std::byte> scratch) {
  if (qkv.dtype == DType::kF64) {
    return Attention<double>(kernels, pool, qkv.dtype, shape, scratch).Forward(qkv, out, lse);
  }
  return Attention<float>(kernels, pool, qkv.dtype, shape, scratch).Forward(qkv, out, lse);
}

absl::Status CpuAttentionBackward(const KernelSet& kernels, ThreadPool& pool, const Matrix& d_out,
                                  const Matrix& qkv, const Matrix& out, const Vector& lse,
                                  const AttentionShape& shape, const Matrix& d_qkv,
                                  std::span<std::byte> scratch) {
  if (qkv.dtype == DType::kF64) {
    return Attention<double>(kernels, pool, qkv.dtype, shape, scratch)
        .Backward(d_out, qkv, out, lse, d_qkv);
  }
  return Attention<float>(kernels, pool, qkv.dtype, shape, scratch)
      .Backward(d_out, qkv, out, lse, d_qkv);
}

}  // namespace fsdp::cpu

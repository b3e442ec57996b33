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
            std::span<const std::int32_t> document_begins, std::span<std::byte> scratch)
      : set_(set),
        kernels_(KernelsFor(set, dtype)),
        pool_(pool),
        shape_(shape),
        document_begins_(document_begins),
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
  // Scratch of a forward task, and the keys and values of its sequence.
  struct ForwardWork {
    View<S> scores, sum, k, v;
    S *inverse_sum, *q_copy;
  };
  absl::Status ForwardHead(const Matrix& qkv, const Matrix& out, S* lse, i64 batch, i64 head,
                           Scratch<S> scratch);
  // Queries [begin, end) of a sequence against keys [begin, end).
  absl::Status ForwardDocument(const Matrix& qkv, const Matrix& out, S* lse, i64 batch, i64 head,
                               i64 begin, i64 end, const ForwardWork& work);
  struct BackwardWork {
    View<S> scores, d_scores, k, v, dk, dv;
    S *delta, *q_copy, *d_out_copy, *dq_copy;
  };
  absl::Status BackwardGroup(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                             const S* lse, const Matrix& d_qkv, i64 batch, i64 kv_head,
                             Scratch<S> scratch);
  absl::Status BackwardDocument(const Matrix& d_out, const Matrix& qkv, const Matrix& out,
                                const S* lse, const Matrix& d_qkv, i64 batch, i64 head, i64 begin,
                                i64 end, const BackwardWork& work);
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
  // Behind the document that begins at `begin` in a sequence; without documents, the sequence.
  [[nodiscard]] i64 DocumentEnd(i64 batch, i64 begin) const {
    if (document_begins_.empty()) return seq_;
    const std::int32_t* const begins = document_begins_.data() + batch * seq_;
    i64 end = begin + 1;
    while (end < seq_ && begins[end] == begins[begin]) ++end;
    return end;
  }
  [[nodiscard]] i64 KeyColumn(i64 kv_head) const { return (shape_.num_heads + kv_head) * dim_; }
  [[nodiscard]] i64 ValueColumn(i64 kv_head) const {
    return (shape_.num_heads + shape_.num_kv_heads + kv_head) * dim_;
  }

  const KernelSet& set_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const AttentionShape& shape_;
  const std::span<const std::int32_t> document_begins_;
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
  ForwardWork work;
  work.scores = {scratch.Take(block_ * seq_), seq_};
  work.inverse_sum = scratch.Take(block_);
  work.sum = {scratch.Take(block_ * dim_), dim_};
  work.q_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  S* const k_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  S* const v_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  const i64 first = batch * seq_;
  work.k = Read(qkv, first, KeyColumn(head / group_), seq_, k_copy);
  work.v = Read(qkv, first, ValueColumn(head / group_), seq_, v_copy);
  for (i64 begin = 0; begin < seq_;) {
    const i64 end = DocumentEnd(batch, begin);
    const absl::Status status = ForwardDocument(qkv, out, lse, batch, head, begin, end, work);
    if (!status.ok()) return status;
    begin = end;
  }
  return absl::OkStatus();
}

template <typename S>
absl::Status Attention<S>::ForwardDocument(const Matrix& qkv, const Matrix& out, S* lse, i64 batch,
                                           i64 head, i64 begin, i64 end, const ForwardWork& work) {
  const View<S> scores = work.scores;
  const View<S> sum = work.sum;
  const View<S> k = work.k.Skip(begin);
  const View<S> v = work.v.Skip(begin);
  for (i64 query = begin; query < end; query += block_) {
    const i64 rows = std::min(block_, end - query);
    const i64 row = batch * seq_ + query;
    const i64 before = query - begin;  // keys of the document before the block
    const i64 width = shape_.causal ? before + rows : end - begin;
    const i64 first_visible = shape_.causal ? before + 1 : width;
    const View<S> q = Read(qkv, row, head * dim_, rows, work.q_copy);
    absl::Status status =
        Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, scale_, q, k, 0, scores);
    kernels_.softmax(
        {scores.data, work.inverse_sum, lse + query, scores.stride, rows, width, first_visible});
    // Keys before the block (causal), or all; then the block's own triangle.
    const i64 whole = shape_.causal ? before : width;
    if (whole == 0) {
      std::fill_n(sum.data, rows * dim_, S{0});
    } else {
      status.Update(Gemm(Transpose::kNo, Transpose::kNo, rows, dim_, whole, 1, scores, v, 0, sum));
    }
    if (shape_.causal) {
      kernels_.diagonal({scores.data + before, v.Skip(before).data, sum.data, scores.stride,
                         v.stride, sum.stride, rows, dim_});
    }
    if (!status.ok()) return status;
    Write(sum, out, row, head * dim_, rows, work.inverse_sum);
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
  BackwardWork work;
  work.scores = {scratch.Take(block_ * seq_), seq_};
  work.d_scores = {scratch.Take(block_ * seq_), seq_};
  work.delta = scratch.Take(block_);
  work.q_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  work.d_out_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  S* const k_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  S* const v_copy = widen_ ? scratch.Take(seq_ * dim_) : nullptr;
  const i64 first = batch * seq_;
  const i64 k_col = KeyColumn(kv_head);
  const i64 v_col = ValueColumn(kv_head);
  work.k = Read(qkv, first, k_col, seq_, k_copy);
  work.v = Read(qkv, first, v_col, seq_, v_copy);
  const auto output = [&](i64 row, i64 col, i64 rows) -> View<S> {
    if (widen_) return {scratch.Take(rows * dim_), dim_};
    return {static_cast<S*>(At(d_qkv, row, col)), d_qkv.stride};
  };
  work.dk = output(first, k_col, seq_);
  work.dv = output(first, v_col, seq_);
  work.dq_copy = widen_ ? scratch.Take(block_ * dim_) : nullptr;
  for (i64 row = 0; row < seq_; ++row) {
    std::fill_n(work.dk.Skip(row).data, dim_, S{0});
    std::fill_n(work.dv.Skip(row).data, dim_, S{0});
  }

  for (i64 head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
    const S* const head_lse = lse + (batch * shape_.num_heads + head) * seq_;
    for (i64 begin = 0; begin < seq_;) {
      const i64 end = DocumentEnd(batch, begin);
      const absl::Status status =
          BackwardDocument(d_out, qkv, out, head_lse, d_qkv, batch, head, begin, end, work);
      if (!status.ok()) return status;
      begin = end;
    }
  }
  if (widen_) {
    Write(work.dk, d_qkv, first, k_col, seq_, nullptr);
    Write(work.dv, d_qkv, first, v_col, seq_, nullptr);
  }
  return absl::OkStatus();
}

template <typename S>
absl::Status Attention<S>::BackwardDocument(const Matrix& d_out, const Matrix& qkv,
                                            const Matrix& out, const S* lse, const Matrix& d_qkv,
                                            i64 batch, i64 head, i64 begin, i64 end,
                                            const BackwardWork& work) {
  const View<S> scores = work.scores;
  const View<S> d_scores = work.d_scores;
  const View<S> k = work.k.Skip(begin);
  const View<S> v = work.v.Skip(begin);
  const View<S> dk = work.dk.Skip(begin);
  const View<S> dv = work.dv.Skip(begin);
  for (i64 query = begin; query < end; query += block_) {
    const i64 rows = std::min(block_, end - query);
    const i64 row = batch * seq_ + query;
    const i64 width = shape_.causal ? query - begin + rows : end - begin;
    const i64 first_visible = shape_.causal ? query - begin + 1 : width;
    const View<S> q = Read(qkv, row, head * dim_, rows, work.q_copy);
    const View<S> d = Read(d_out, row, head * dim_, rows, work.d_out_copy);
    kernels_.row_dot({At(d_out, row, head * dim_), At(out, row, head * dim_), work.delta,
                      d_out.stride, out.stride, 0, dim_},
                     0, rows);
    absl::Status status =
        Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, scale_, q, k, 0, scores);
    status.Update(Gemm(Transpose::kNo, Transpose::kYes, rows, width, dim_, 1, d, v, 0, d_scores));
    kernels_.softmax_backward({scores.data, d_scores.data, lse + query, work.delta, scores.stride,
                               rows, width, first_visible, static_cast<double>(scale_)});
    const View<S> dq = widen_ ? View<S>{work.dq_copy, dim_}
                              : View<S>{static_cast<S*>(At(d_qkv, row, head * dim_)), d_qkv.stride};
    status.Update(Gemm(Transpose::kNo, Transpose::kNo, rows, dim_, width, 1, d_scores, k, 0, dq));
    status.Update(Gemm(Transpose::kYes, Transpose::kNo, width, dim_, rows, 1, d_scores, q, 1, dk));
    status.Update(Gemm(Transpose::kYes, Transpose::kNo, width, dim_, rows, 1, scores, d, 1, dv));
    if (!status.ok()) return status;
    if (widen_) Write(dq, d_qkv, row, head * dim_, rows, nullptr);
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
                                 const AttentionShape& shape,
                                 std::span<const std::int32_t> document_begins, const Matrix& out,
                                 const Vector& lse, std::span<std::byte> scratch) {
  if (qkv.dtype == DType::kF64) {
    return Attention<double>(kernels, pool, qkv.dtype, shape, document_begins, scratch)
        .Forward(qkv, out, lse);
  }
  return Attention<float>(kernels, pool, qkv.dtype, shape, document_begins, scratch)
      .Forward(qkv, out, lse);
}

absl::Status CpuAttentionBackward(const KernelSet& kernels, ThreadPool& pool, const Matrix& d_out,
                                  const Matrix& qkv, const Matrix& out, const Vector& lse,
                                  const AttentionShape& shape,
                                  std::span<const std::int32_t> document_begins,
                                  const Matrix& d_qkv, std::span<std::byte> scratch) {
  if (qkv.dtype == DType::kF64) {
    return Attention<double>(kernels, pool, qkv.dtype, shape, document_begins, scratch)
        .Backward(d_out, qkv, out, lse, d_qkv);
  }
  return Attention<float>(kernels, pool, qkv.dtype, shape, document_begins, scratch)
      .Backward(d_out, qkv, out, lse, d_qkv);
}

}  // namespace fsdp::cpu

#ifndef FSDPCTL_WORKER_DEVICE_CPU_KERNELS_SOFTMAX_H_
#define FSDPCTL_WORKER_DEVICE_CPU_KERNELS_SOFTMAX_H_

// Attention's softmax, cross-entropy and the f64 matrix product. Included by kernels_isa.cc only
// (see simd.h).

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/simd.h"

namespace fsdp::cpu::FSDP_ISA {
namespace {

FSDP_INLINE i64 Min(i64 a, i64 b) { return a < b ? a : b; }

template <typename T>
A<T> RowMax(const T* x, i64 size) {
  V<T> best = Splat<V<T>>(-__builtin_inff());
  i64 i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const V<T> v = Load(x + i, Full{});
    best = v > best ? v : best;
  }
  A<T> result = HorizontalMax(best);
  for (; i < size; ++i) {
    const A<T> v = Load(x + i, 1)[0];
    result = v > result ? v : result;
  }
  return result;
}

// Sums of exponentials: groups of this many in sums, groups in f64.
inline constexpr i64 kExpGroup = 1024;

template <typename T>
double SumExp(const T* x, A<T> shift, i64 size) {
  double total = 0;
  for (i64 group = 0; group < size; group += kExpGroup) {
    V<T> part = {};
    ForLanes(group, Min(group + kExpGroup, size),
             [&](i64 i, auto n) { part += Mask(Exp(Load(x + i, n) - shift), n); });
    total += static_cast<double>(HorizontalSum(part));
  }
  return total;
}

template <typename T>  // a type of sums
void Softmax(const SoftmaxArgs& p) {
  for (i64 row = 0; row < p.rows; ++row) {
    T* s = Row<T>(p.scores, row, p.stride);
    const i64 visible = Min(p.first_visible + row, p.width);
    const T shift = RowMax(s, visible);
    V<T> total = {};
    ForLanes(0, visible, [&](i64 i, auto n) {
      const V<T> e = Mask(Exp(Load(s + i, n) - shift), n);
      total += e;
      Store(s + i, e, n);
    });
    for (i64 i = visible; i < p.width; ++i) s[i] = 0;
    const T sum = HorizontalSum(total);
    static_cast<T*>(p.inverse_sum)[row] = 1 / sum;
    static_cast<T*>(p.lse)[row] =
        static_cast<T>(static_cast<double>(shift) + __builtin_log(static_cast<double>(sum)));
  }
}

template <typename T>  // a type of sums
void SoftmaxBackward(const SoftmaxBackwardArgs& p) {
  for (i64 row = 0; row < p.rows; ++row) {
    T* s = Row<T>(p.scores, row, p.stride);
    T* d = Row<T>(p.d_scores, row, p.stride);
    const i64 visible = Min(p.first_visible + row, p.width);
    const T lse = static_cast<const T*>(p.lse)[row];
    const T delta = static_cast<const T*>(p.delta)[row];
    const T scale = static_cast<T>(p.scale);
    ForLanes(0, visible, [&](i64 i, auto n) {
      const V<T> weight = Exp(Load(s + i, n) - lse);
      Store(s + i, weight, n);
      Store(d + i, weight * (Load(d + i, n) - delta) * scale, n);
    });
    for (i64 i = visible; i < p.width; ++i) s[i] = d[i] = 0;
  }
}

// Four rows at a time share the loads of v; the last, ragged part of the triangle row by row.
template <typename T>  // a type of sums
void Diagonal(const DiagonalArgs& p) {
  for (i64 row = 0; row < p.rows; row += 4) {
    const i64 rows = Min(4, p.rows - row);
    const T* w[4];
    for (i64 r = 0; r < 4; ++r) w[r] = Row<T>(p.p, row + (r < rows ? r : 0), p.p_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      V<T> total[4] = {};
      for (i64 j = 0; j <= row; ++j) {
        const V<T> v = Load(Row<T>(p.v, j, p.v_stride) + i, n);
        for (int r = 0; r < 4; ++r) total[r] += w[r][j] * v;
      }
      for (i64 r = 0; r < rows; ++r) {
        for (i64 j = row + 1; j <= row + r; ++j) {
          total[r] += w[r][j] * Load(Row<T>(p.v, j, p.v_stride) + i, n);
        }
        T* out = Row<T>(p.out, row + r, p.out_stride) + i;
        Store(out, Load(out, n) + total[r], n);
      }
    });
  }
}

template <typename T>
void RowDot(const ElementwiseArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* a = Row<T>(p.a, row, p.a_stride);
    const T* b = Row<T>(p.b, row, p.b_stride);
    V<T> total = {};
    ForLanes(0, p.cols, [&](i64 i, auto n) { total += Load(a + i, n) * Load(b + i, n); });
    static_cast<A<T>*>(p.y)[row] = HorizontalSum(total);
  }
}

inline constexpr std::int32_t kIgnored = -100;  // kIgnoreTarget of ops.h

template <typename T>
void CrossEntropy(const CrossEntropyArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    T* logits = Row<T>(p.logits, row, p.stride);
    const std::int32_t target = p.targets[row];
    p.row_loss[row] = 0;
    if (target == kIgnored) {
      if (!p.loss_only)
        __builtin_memset(logits, 0, sizeof(T) * static_cast<unsigned long>(p.vocab));
      continue;
    }
    const A<T> shift = RowMax(logits, p.vocab);
    const double sum = SumExp(logits, shift, p.vocab);
    const A<T> picked = Load(logits + target, 1)[0];
    p.row_loss[row] =
        (static_cast<double>(shift) - static_cast<double>(picked)) + __builtin_log(sum);
    if (p.loss_only) continue;
    const A<T> inverse = static_cast<A<T>>(1 / sum);
    const V<T> target_gradient = Exp(Splat<V<T>>(picked - shift)) * inverse - 1;
    ForLanes(0, p.vocab, [&](i64 i, auto n) {
      Store(logits + i, Exp(Load(logits + i, n) - shift) * inverse, n);
    });
    Store(logits + target, target_gradient, 1);
  }
}

// Panels of sixteen columns and kDepth rows of b are packed; four rows of c at a time.
inline constexpr i64 kDepth = 256;

void GemmF64(i64 m, i64 n, i64 k, double alpha, const double* a, i64 a_row, i64 a_col,
             const double* b, i64 b_row, i64 b_col, double beta, double* c, i64 c_row) {
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) {
      c[i * c_row + j] = beta == 0 ? 0 : beta * c[i * c_row + j];
    }
  }
  D16 panel[kDepth];
  for (i64 depth = 0; depth < k; depth += kDepth) {
    const i64 part = Min(kDepth, k - depth);
    for (i64 col = 0; col < n; col += kLanes) {
      const int width = static_cast<int>(Min(kLanes, n - col));
      for (i64 l = 0; l < part; ++l) {
        panel[l] = D16{};
        for (int j = 0; j < width; ++j) panel[l][j] = b[(depth + l) * b_row + (col + j) * b_col];
      }
      for (i64 row = 0; row < m; row += 4) {
        const i64 rows = Min(4, m - row);
        D16 total[4] = {};
        for (i64 l = 0; l < part; ++l) {
          for (i64 r = 0; r < 4; ++r) {
            const i64 i = row + (r < rows ? r : 0);
            total[r] += a[i * a_row + (depth + l) * a_col] * panel[l];
          }
        }
        for (i64 r = 0; r < rows; ++r) {
          double* to = c + (row + r) * c_row + col;
          Store(to, Load(to, width) + alpha * total[r], width);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::cpu::FSDP_ISA

#endif  // FSDPCTL_WORKER_DEVICE_CPU_KERNELS_SOFTMAX_H_

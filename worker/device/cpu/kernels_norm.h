#ifndef FSDPCTL_WORKER_DEVICE_CPU_KERNELS_NORM_H_
#define FSDPCTL_WORKER_DEVICE_CPU_KERNELS_NORM_H_

// RMS and layer norm, column sums. Included by kernels_isa.cc only (see simd.h).

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/simd.h"

namespace fsdp::cpu::FSDP_ISA {
namespace {

template <typename T>
A<T> RowMean(const T* x, i64 cols) {
  V<T> total = {};
  ForLanes(0, cols, [&](i64 i, auto n) { total += Load(x + i, n); });
  return HorizontalSum(total) / static_cast<A<T>>(cols);
}

template <typename T>
A<T> RowMeanSquare(const T* x, A<T> center, i64 cols) {
  V<T> total = {};
  ForLanes(0, cols, [&](i64 i, auto n) {
    const V<T> d = Mask(Load(x + i, n) - center, n);
    total += d * d;
  });
  return HorizontalSum(total) / static_cast<A<T>>(cols);
}

// One place for it, so that the backward pass writes y again to the same bits.
template <typename T, typename N>
FSDP_INLINE V<T> Normalized(V<T> x, A<T> mean, A<T> rstd, const T* weight, const T* bias, i64 i,
                            N n) {
  V<T> add = {};
  if (bias != nullptr) add = Load(bias + i, n);
  // One expression: in two, only some of its copies become a multiply-add.
  return (x - mean) * rstd * Load(weight + i, n) + add;
}

template <typename T>
void NormForward(const NormForwardArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* x = Row<T>(p.x, row, p.x_stride);
    if (p.delta != nullptr) {
      const T* delta = Row<T>(p.delta, row, p.delta_stride);
      T* sum = Row<T>(p.sum, row, p.sum_stride);
      ForLanes(0, p.cols,
               [&](i64 i, auto n) { Store(sum + i, Load(x + i, n) + Load(delta + i, n), n); });
      x = sum;
    }
    const A<T> mean = p.mean == nullptr ? 0 : RowMean(x, p.cols);
    const A<T> rstd = 1 / Sqrt(RowMeanSquare(x, mean, p.cols) + static_cast<A<T>>(p.eps));
    const T* weight = static_cast<const T*>(p.weight);
    const T* bias = static_cast<const T*>(p.bias);
    T* y = Row<T>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      Store(y + i, Normalized(Load(x + i, n), mean, rstd, weight, bias, i, n), n);
    });
    if (p.mean != nullptr) static_cast<A<T>*>(p.mean)[row] = mean;
    static_cast<A<T>*>(p.rstd)[row] = rstd;
  }
}

// With g = dy w and xhat = (x - mean) rstd:
//   dx = rstd (g - mean(g) - xhat mean(g xhat)), without the mean(g) term for RMS norm.
template <typename T>
void NormDx(const NormBackwardArgs& p, i64 begin, i64 end) {
  const T* weight = static_cast<const T*>(p.weight);
  const T* bias = static_cast<const T*>(p.bias);
  for (i64 row = begin; row < end; ++row) {
    const T* dy = Row<T>(p.dy, row, p.dy_stride);
    const T* x = Row<T>(p.x, row, p.x_stride);
    const A<T> mean = p.mean == nullptr ? 0 : static_cast<const A<T>*>(p.mean)[row];
    const A<T> rstd = static_cast<const A<T>*>(p.rstd)[row];
    V<T> g_total = {};
    V<T> gx_total = {};
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      const V<T> g = Load(dy + i, n) * Load(weight + i, n);
      g_total += g;
      gx_total += g * ((Load(x + i, n) - mean) * rstd);
    });
    const A<T> count = static_cast<A<T>>(p.cols);
    const A<T> g_mean = p.mean == nullptr ? 0 : HorizontalSum(g_total) / count;
    const A<T> gx_mean = HorizontalSum(gx_total) / count;
    const T* residual =
        p.residual == nullptr ? nullptr : Row<T>(p.residual, row, p.residual_stride);
    T* dx = Row<T>(p.dx, row, p.dx_stride);
    T* y = p.y == nullptr ? nullptr : Row<T>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      const V<T> g = Load(dy + i, n) * Load(weight + i, n);
      const V<T> x_lanes = Load(x + i, n);
      const V<T> xhat = (x_lanes - mean) * rstd;
      V<T> v = rstd * (g - g_mean - xhat * gx_mean);
      if (residual != nullptr) v += Load(residual + i, n);
      Store(dx + i, v, n);
      if (y != nullptr) Store(y + i, Normalized(x_lanes, mean, rstd, weight, bias, i, n), n);
    });
  }
}

template <typename T, typename N>
FSDP_INLINE void StoreSum(void* out, i64 i, V<T> total, bool out_is_sum, bool accumulate, N n) {
  if (out_is_sum) {
    A<T>* to = static_cast<A<T>*>(out) + i;
    Store(to, accumulate ? Load(to, n) + total : total, n);
  } else {
    T* to = static_cast<T*>(out) + i;
    Store(to, accumulate ? Load(to, n) + total : total, n);
  }
}

// Rows are summed in groups of this many and the groups then, which keeps the rounding error of a
// sum of R rows near (kRowGroup + R / kRowGroup) / 2 units instead of R / 2.
inline constexpr i64 kRowGroup = 64;

template <typename T>
void NormDWeight(const NormBackwardArgs& p, i64 begin, i64 end) {
  const A<T>* mean = static_cast<const A<T>*>(p.mean);
  const A<T>* rstd = static_cast<const A<T>*>(p.rstd);
  ForLanes(begin, end, [&](i64 i, auto n) {
    V<T> weight_total = {};
    V<T> bias_total = {};
    for (i64 group = 0; group < p.rows; group += kRowGroup) {
      const i64 stop = group + kRowGroup < p.rows ? group + kRowGroup : p.rows;
      V<T> weight_part = {};
      V<T> bias_part = {};
      for (i64 row = group; row < stop; ++row) {
        const V<T> dy = Load(Row<T>(p.dy, row, p.dy_stride) + i, n);
        const V<T> x = Load(Row<T>(p.x, row, p.x_stride) + i, n);
        weight_part += dy * ((x - (mean == nullptr ? 0 : mean[row])) * rstd[row]);
        bias_part += dy;
      }
      weight_total += weight_part;
      bias_total += bias_part;
    }
    StoreSum<T>(p.d_weight, i, weight_total, p.d_weight_is_sum, p.accumulate, n);
    if (p.d_bias != nullptr) {
      StoreSum<T>(p.d_bias, i, bias_total, p.d_bias_is_sum, p.accumulate, n);
    }
  });
}

template <typename T>
void ColumnSum(const ColumnSumArgs& p, i64 begin, i64 end) {
  ForLanes(begin, end, [&](i64 i, auto n) {
    V<T> total = {};
    for (i64 group = 0; group < p.rows; group += kRowGroup) {
      const i64 stop = group + kRowGroup < p.rows ? group + kRowGroup : p.rows;
      V<T> part = {};
      for (i64 row = group; row < stop; ++row) part += Load(Row<T>(p.x, row, p.x_stride) + i, n);
      total += part;
    }
    StoreSum<T>(p.out, i, total, p.out_is_sum, p.accumulate, n);
  });
}

template <typename T>
void GatherSum(const GatherSumArgs& p, i64 begin, i64 end) {
  ForLanes(begin, end, [&](i64 i, auto n) {
    V<T> total = {};
    for (i64 k = p.begin; k < p.end; ++k) {
      total += Load(Row<T>(p.x, p.index[k], p.x_stride) + i, n);
    }
    StoreSum<T>(p.out, i, total, p.out_is_sum, p.accumulate, n);
  });
}

}  // namespace
}  // namespace fsdp::cpu::FSDP_ISA

#endif  // FSDPCTL_WORKER_DEVICE_CPU_KERNELS_NORM_H_

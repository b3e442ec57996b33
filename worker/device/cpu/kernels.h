#ifndef FSDPCTL_WORKER_DEVICE_CPU_KERNELS_H_
#define FSDPCTL_WORKER_DEVICE_CPU_KERNELS_H_

// The CPU backend's inner loops: serial, over a range of rows or columns, no checks, no allocation.
// kernels*.cc are compiled once per instruction set (see CMakeLists.txt); KernelsFor picks the best
// that the machine has, so one binary runs on any x86-64-v2 machine.
//
// Element types are erased to void*: each table is for one dtype of the operands. "Sums" are f32,
// or f64 in the f64 table. Results of a table never depend on how a range is divided among calls.
//
// This header is included by the per-instruction-set files: no inline functions and no standard
// containers here, or the linker might keep an AVX-512 copy of them for everybody.

#include <cstdint>

#include "worker/device/dtype.h"

namespace fsdp::cpu {

struct NormForwardArgs {
  const void *x, *delta, *weight, *bias;  // delta, bias may be null
  void *sum, *y, *mean, *rstd;            // mean null: RMS norm; mean and rstd are sums
  std::int64_t x_stride, delta_stride, sum_stride, y_stride, cols;
  double eps;
};

struct NormBackwardArgs {
  const void *dy, *x, *weight, *mean, *rstd, *residual;  // mean null: RMS norm
  void *dx, *d_weight, *d_bias;                          // d_bias may be null
  void* y;           // may be null: the forward's output, to be written again
  const void* bias;  // null for RMS norm; read for y
  std::int64_t dy_stride, x_stride, residual_stride, dx_stride, y_stride, rows, cols;
  bool d_weight_is_sum, d_bias_is_sum;  // stored as sums (f32) rather than as the operands' dtype
  bool accumulate;
};

struct ColumnSumArgs {
  const void* x;
  void* out;
  std::int64_t x_stride, rows;
  bool out_is_sum, accumulate;
};

struct RopeArgs {
  void* qkv;
  const void *cos, *sin;  // sums
  std::int64_t qkv_stride, cos_stride, sin_stride, seq, heads, head_dim;
  bool inverse;
};

struct ElementwiseArgs {
  const void *a, *b;
  void* y;
  std::int64_t a_stride, b_stride, y_stride, cols;
  // Backward passes of activations: the forward's output, to be written again; may be null.
  void* redo = nullptr;
  std::int64_t redo_stride = 0;
};

struct EmbeddingArgs {
  const std::int32_t* tokens;
  const void *table, *positions;     // positions may be null
  const std::int32_t* position_ids;  // null: row % seq
  void* out;
  std::int64_t table_stride, positions_stride, out_stride, seq, cols;
};

// out[row] (+)= the sum of x[index[k]] for k in [begin, end), in that order.
struct GatherSumArgs {
  const void* x;
  const std::int64_t* index;
  std::int64_t begin, end;
  void* out;  // one row
  std::int64_t x_stride, cols;
  bool out_is_sum, accumulate;
};

struct CrossEntropyArgs {
  void* logits;
  const std::int32_t* targets;
  double* row_loss;
  std::int64_t stride, vocab;
  bool loss_only;
};

struct SoftmaxArgs {
  void* scores;  // sums [rows, width]; becomes exp(score - max), 0 where masked
  void *inverse_sum, *lse;
  std::int64_t stride, rows, width,
      first_visible;  // row i sees first_visible + i columns (<= width)
};

struct SoftmaxBackwardArgs {
  void *scores, *d_scores;  // sums [rows, width]: scores -> p, dp -> scale p (dp - delta)
  const void *lse, *delta;
  std::int64_t stride, rows, width, first_visible;
  double scale;
};

// out[i, :] += sum over j <= i of p[i, j] v[j, :]: the tile on a causal diagonal. Columns j > i are
// not read.
struct DiagonalArgs {
  const void *p, *v;
  void* out;
  std::int64_t p_stride, v_stride, out_stride, rows, cols;
};

struct ConvertArgs {
  const void* from;
  void* to;
  std::int64_t from_stride, to_stride, cols;
  const void* row_scale;  // sums; null = 1
};

struct AdamWArgs {
  void *master, *m, *v;
  const void* grad;
  void *compute, *remainder;  // bf16 and u16: both hold the master, and `master` is null
  double lr, beta1, beta2, eps, step_size, inverse_sqrt_bias2, decay_factor, grad_scale;
};

struct Kernels {
  using Range = std::int64_t;
  void (*norm_forward)(const NormForwardArgs&, Range begin, Range end);     // rows
  void (*norm_dx)(const NormBackwardArgs&, Range begin, Range end);         // rows
  void (*norm_d_weight)(const NormBackwardArgs&, Range begin, Range end);   // columns
  void (*column_sum)(const ColumnSumArgs&, Range begin, Range end);         // columns
  void (*rope)(const RopeArgs&, Range begin, Range end);                    // rows
  void (*add)(const ElementwiseArgs&, Range begin, Range end);              // y = a + b
  void (*add_row)(const ElementwiseArgs&, Range begin, Range end);          // y(sum) += b[0, :]
  void (*silu_forward)(const ElementwiseArgs&, Range begin, Range end);     // a -> y
  void (*silu_backward)(const ElementwiseArgs&, Range begin, Range end);    // a = dy, b = x
  void (*gelu_forward)(const ElementwiseArgs&, Range begin, Range end);     // a -> y
  void (*gelu_backward)(const ElementwiseArgs&, Range begin, Range end);    // a = dy, b = x
  void (*swiglu_forward)(const ElementwiseArgs&, Range begin, Range end);   // a = gate_up
  void (*swiglu_backward)(const ElementwiseArgs&, Range begin, Range end);  // a = dh, b = gate_up
  void (*embedding_forward)(const EmbeddingArgs&, Range begin, Range end);  // rows
  void (*gather_sum)(const GatherSumArgs&, Range begin, Range end);         // columns
  void (*cross_entropy)(const CrossEntropyArgs&, Range begin, Range end);   // rows
  void (*softmax)(const SoftmaxArgs&);
  void (*softmax_backward)(const SoftmaxBackwardArgs&);
  void (*diagonal)(const DiagonalArgs&);
  void (*to_sum)(const ConvertArgs&, Range begin, Range end);       // operand -> sums
  void (*from_sum)(const ConvertArgs&, Range begin, Range end);     // sums -> operand
  void (*row_dot)(const ElementwiseArgs&, Range begin, Range end);  // y(sum)[row] = a . b
  // Sum of squares in f64; *finite becomes false when an element is NaN or Inf.
  double (*sum_squares)(const void* x, Range begin, Range end, bool* finite);
  // Elementwise over [begin, end) of contiguous runs; the f32 and f64 tables only.
  void (*adamw)(const AdamWArgs&, Range begin, Range end);
};

// Conversions between contiguous runs of any two of f32, bf16, f64: narrowing rounds to nearest
// even.
using CastFunction = void (*)(const void* from, void* to, std::int64_t begin, std::int64_t end);

struct KernelSet {
  const char* isa;  // "avx512", "avx2", "baseline"
  Kernels f32, bf16, f64;
  CastFunction cast[3][3];        // [from][to], in the order f64, f32, bf16
  CastFunction accumulate[3][2];  // [from][to]: to += from; to is f64 or f32
  void (*split_master)(const float* master, std::uint16_t* compute, std::uint16_t* remainder,
                       std::int64_t begin, std::int64_t end);
  void (*join_master)(const std::uint16_t* compute, const std::uint16_t* remainder, float* master,
                      std::int64_t begin, std::int64_t end);
  void (*exp_f32)(const float* x, float* y, std::int64_t size);
  // c[m,n] = alpha op(a) op(b) + beta c; element (i,k) of op(a) is a[i*a_row + k*a_col].
  void (*gemm_f64)(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a,
                   std::int64_t a_row, std::int64_t a_col, const double* b, std::int64_t b_row,
                   std::int64_t b_col, double beta, double* c, std::int64_t c_row);
};

namespace avx512 {
const KernelSet& GetKernelSet();
}
namespace avx2 {
const KernelSet& GetKernelSet();
}
namespace baseline {
const KernelSet& GetKernelSet();
}

// The best set for this machine.
const KernelSet& BestKernels();
// The table for f32, bf16 or f64 operands; other dtypes have none (the caller has checked).
const Kernels& KernelsFor(const KernelSet& set, DType dtype);

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_KERNELS_H_

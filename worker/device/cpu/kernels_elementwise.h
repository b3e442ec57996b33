#ifndef FSDPCTL_WORKER_DEVICE_CPU_KERNELS_ELEMENTWISE_H_
#define FSDPCTL_WORKER_DEVICE_CPU_KERNELS_ELEMENTWISE_H_

// Activations, rope, embedding, conversions. Included by kernels_isa.cc only (see simd.h).

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/simd.h"

namespace fsdp::cpu::FSDP_ISA {
namespace {

template <typename T, typename F>
FSDP_INLINE void Unary(const ElementwiseArgs& p, i64 begin, i64 end, F f) {
  for (i64 row = begin; row < end; ++row) {
    const T* a = Row<T>(p.a, row, p.a_stride);
    T* y = Row<T>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) { Store(y + i, f(Load(a + i, n)), n); });
  }
}
template <typename T, typename F>
FSDP_INLINE void Binary(const ElementwiseArgs& p, i64 begin, i64 end, F f) {
  for (i64 row = begin; row < end; ++row) {
    const T* a = Row<T>(p.a, row, p.a_stride);
    const T* b = Row<T>(p.b, row, p.b_stride);
    T* y = Row<T>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) { Store(y + i, f(Load(a + i, n), Load(b + i, n)), n); });
  }
}

template <typename T>
void Add(const ElementwiseArgs& p, i64 begin, i64 end) {
  Binary<T>(p, begin, end, [](V<T> a, V<T> b) { return a + b; });
}

// y holds sums; b is one row of operands.
template <typename T>
void AddRow(const ElementwiseArgs& p, i64 begin, i64 end) {
  const T* b = static_cast<const T*>(p.b);
  for (i64 row = begin; row < end; ++row) {
    A<T>* y = Row<A<T>>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) { Store(y + i, Load(y + i, n) + Load(b + i, n), n); });
  }
}

template <typename T>
void SiluForward(const ElementwiseArgs& p, i64 begin, i64 end) {
  Unary<T>(p, begin, end, [](V<T> x) { return x * Sigmoid(x); });
}

// What a backward pass of an activation stores: dx and, for who asks, the forward's y. Each lane is
// read before either is written, so that they may take the place of dy and x.
template <typename W>
struct GradientAndValue {
  W dx, y;
};
template <typename T, typename F>
FSDP_INLINE void ActivationBackward(const ElementwiseArgs& p, i64 begin, i64 end, F f) {
  for (i64 row = begin; row < end; ++row) {
    const T* dy = Row<T>(p.a, row, p.a_stride);
    const T* x = Row<T>(p.b, row, p.b_stride);
    T* dx = Row<T>(p.y, row, p.y_stride);
    T* y = p.redo == nullptr ? nullptr : Row<T>(p.redo, row, p.redo_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      const GradientAndValue<V<T>> out = f(Load(dy + i, n), Load(x + i, n));
      Store(dx + i, out.dx, n);
      if (y != nullptr) Store(y + i, out.y, n);
    });
  }
}

// d silu/dx = s (1 + x (1 - s)).
template <typename W>
FSDP_INLINE W SiluDerivative(W x, W s) {
  return s * (1 + x * (1 - s));
}

template <typename T>
void SiluBackward(const ElementwiseArgs& p, i64 begin, i64 end) {
  ActivationBackward<T>(p, begin, end, [](V<T> dy, V<T> x) -> GradientAndValue<V<T>> {
    const V<T> s = Sigmoid(x);
    return {dy * SiluDerivative(x, s), x * s};
  });
}

// 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation.
inline constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
template <typename T>
FSDP_INLINE V<T> GeluSigmoid(V<T> x) {
  const A<T> c = static_cast<A<T>>(kTwoSqrt2OverPi);
  return Sigmoid(c * (x + static_cast<A<T>>(0.044715) * x * x * x));
}

template <typename T>
void GeluForward(const ElementwiseArgs& p, i64 begin, i64 end) {
  Unary<T>(p, begin, end, [](V<T> x) { return x * GeluSigmoid<T>(x); });
}

template <typename T>
void GeluBackward(const ElementwiseArgs& p, i64 begin, i64 end) {
  ActivationBackward<T>(p, begin, end, [](V<T> dy, V<T> x) -> GradientAndValue<V<T>> {
    const V<T> s = GeluSigmoid<T>(x);
    const A<T> c = static_cast<A<T>>(kTwoSqrt2OverPi);
    const V<T> slope = c * (1 + static_cast<A<T>>(3 * 0.044715) * x * x);
    return {dy * (s + x * s * (1 - s) * slope), x * s};
  });
}

template <typename T>
void SwiGluForward(const ElementwiseArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* gate = Row<T>(p.a, row, p.a_stride);
    const T* up = gate + p.cols;
    T* y = Row<T>(p.y, row, p.y_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      const V<T> g = Load(gate + i, n);
      Store(y + i, g * Sigmoid(g) * Load(up + i, n), n);
    });
  }
}

template <typename T>
void SwiGluBackward(const ElementwiseArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* dh = Row<T>(p.a, row, p.a_stride);
    const T* gate = Row<T>(p.b, row, p.b_stride);
    const T* up = gate + p.cols;
    T* d_gate = Row<T>(p.y, row, p.y_stride);
    T* d_up = d_gate + p.cols;
    T* h = p.redo == nullptr ? nullptr : Row<T>(p.redo, row, p.redo_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) {
      const V<T> g = Load(gate + i, n);
      const V<T> u = Load(up + i, n);
      const V<T> d = Load(dh + i, n);
      const V<T> s = Sigmoid(g);
      Store(d_gate + i, d * u * SiluDerivative(g, s), n);
      Store(d_up + i, d * g * s, n);
      if (h != nullptr) Store(h + i, g * s * u, n);
    });
  }
}

template <typename T>
void Rope(const RopeArgs& p, i64 begin, i64 end) {
  const i64 half = p.head_dim / 2;
  for (i64 row = begin; row < end; ++row) {
    const A<T>* cos = Row<A<T>>(p.cos, row % p.seq, p.cos_stride);
    const A<T>* sin = Row<A<T>>(p.sin, row % p.seq, p.sin_stride);
    for (i64 head = 0; head < p.heads; ++head) {
      T* low = Row<T>(p.qkv, row, p.qkv_stride) + head * p.head_dim;
      T* high = low + half;
      ForLanes(0, half, [&](i64 i, auto n) {
        const V<T> c = Load(cos + i, n);
        const V<T> s = p.inverse ? -Load(sin + i, n) : Load(sin + i, n);
        const V<T> a = Load(low + i, n);
        const V<T> b = Load(high + i, n);
        Store(low + i, a * c - b * s, n);
        Store(high + i, b * c + a * s, n);
      });
    }
  }
}

template <typename T>
void EmbeddingForward(const EmbeddingArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* from = Row<T>(p.table, p.tokens[row], p.table_stride);
    T* out = Row<T>(p.out, row, p.out_stride);
    if (p.positions == nullptr) {
      __builtin_memcpy(out, from, sizeof(T) * static_cast<unsigned long>(p.cols));
      continue;
    }
    const i64 at = p.position_ids == nullptr ? row % p.seq : p.position_ids[row];
    const T* position = Row<T>(p.positions, at, p.positions_stride);
    ForLanes(0, p.cols,
             [&](i64 i, auto n) { Store(out + i, Load(from + i, n) + Load(position + i, n), n); });
  }
}

template <typename T>
void ToSum(const ConvertArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const T* from = Row<T>(p.from, row, p.from_stride);
    A<T>* to = Row<A<T>>(p.to, row, p.to_stride);
    ForLanes(0, p.cols, [&](i64 i, auto n) { Store(to + i, Load(from + i, n), n); });
  }
}

template <typename T>
void FromSum(const ConvertArgs& p, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    const A<T>* from = Row<A<T>>(p.from, row, p.from_stride);
    T* to = Row<T>(p.to, row, p.to_stride);
    const A<T> scale = p.row_scale == nullptr ? 1 : static_cast<const A<T>*>(p.row_scale)[row];
    ForLanes(0, p.cols, [&](i64 i, auto n) { Store(to + i, Load(from + i, n) * scale, n); });
  }
}

// Between any two dtypes, through the wider of the two sums.
FSDP_INLINE F16 ConvertLanes(F16 v, const F16*) { return v; }
FSDP_INLINE D16 ConvertLanes(D16 v, const D16*) { return v; }
FSDP_INLINE D16 ConvertLanes(F16 v, const D16*) { return __builtin_convertvector(v, D16); }
FSDP_INLINE F16 ConvertLanes(D16 v, const F16*) { return __builtin_convertvector(v, F16); }

template <typename From, typename To>
void Cast(const void* from, void* to, i64 begin, i64 end) {
  const From* x = static_cast<const From*>(from);
  To* y = static_cast<To*>(to);
  ForLanes(begin, end, [&](i64 i, auto n) {
    Store(y + i, ConvertLanes(Load(x + i, n), static_cast<const V<To>*>(nullptr)), n);
  });
}

// f64 -> bf16 in one rounding: through an f32 rounded to odd, which keeps what a tie needs.
template <>
void Cast<double, Bf16>(const void* from, void* to, i64 begin, i64 end) {
  const double* x = static_cast<const double*>(from);
  Bf16* y = static_cast<Bf16*>(to);
  ForLanes(begin, end, [&](i64 i, auto n) {
    const D16 wide = Load(x + i, n);
    F16 narrow = __builtin_convertvector(wide, F16);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double back = static_cast<double>(narrow[lane]);
      if (back == wide[lane] || back != back) continue;
      std::uint32_t bits;
      float value = narrow[lane];
      __builtin_memcpy(&bits, &value, 4);
      if ((bits & 0x7FFFFFFFU) == 0x7F800000U) continue;  // overflowed to infinity
      if ((bits & 1U) != 0) continue;
      // An even neighbour was chosen though the value is inexact: step towards the value.
      const bool away = (back < wide[lane]) == !(bits >> 31);
      bits = away ? bits + 1 : bits - 1;
      __builtin_memcpy(&value, &bits, 4);
      narrow[lane] = value;
    }
    Store(y + i, narrow, n);
  });
}

template <typename From, typename To>
void Accumulate(const void* from, void* to, i64 begin, i64 end) {
  const From* x = static_cast<const From*>(from);
  To* y = static_cast<To*>(to);
  ForLanes(begin, end, [&](i64 i, auto n) {
    const V<To> add = ConvertLanes(Load(x + i, n), static_cast<const V<To>*>(nullptr));
    Store(y + i, Load(y + i, n) + add, n);
  });
}

}  // namespace
}  // namespace fsdp::cpu::FSDP_ISA

#endif  // FSDPCTL_WORKER_DEVICE_CPU_KERNELS_ELEMENTWISE_H_

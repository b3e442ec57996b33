// Activations, RoPE, addition and conversion: one read of each operand, one write of the result.

#include <type_traits>

#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/kernels/map.cuh"

namespace fsdp::kernels {
namespace {

template <typename T>
__device__ __forceinline__ float Exp(float x) {
  // The fast form is exact to bf16's rounding; f32 is the reference precision.
  if constexpr (std::is_same_v<T, float>) return expf(x);
  return __expf(x);
}
template <typename T>
__device__ __forceinline__ float Sigmoid(float x) {
  const float below = 1.0F + Exp<T>(-x);
  if constexpr (std::is_same_v<T, float>) return 1.0F / below;
  return __fdividef(1.0F, below);
}

template <typename T>
struct Silu {
  __device__ __forceinline__ static float Value(float x) { return x * Sigmoid<T>(x); }
  __device__ __forceinline__ static float Slope(float x) {
    const float s = Sigmoid<T>(x);
    return s * (1.0F + x * (1.0F - s));
  }
};

// The tanh form, 0.5 x (1 + tanh(c (x + 0.044715 x^3))), c = sqrt(2/pi), written with the sigmoid
// that equals 0.5 (1 + tanh): nothing cancels where it is close to 0.
template <typename T>
struct Gelu {
  static constexpr float kTwiceC = 2 * 0.7978845608028654F;
  static constexpr float kCubic = 0.044715F;
  __device__ __forceinline__ static float Gate(float x) {
    return Sigmoid<T>(kTwiceC * (x + kCubic * x * x * x));
  }
  __device__ __forceinline__ static float Value(float x) { return x * Gate(x); }
  __device__ __forceinline__ static float Slope(float x) {
    const float gate = Gate(x);
    const float inner = kTwiceC * (1.0F + 3.0F * kCubic * x * x);
    return gate + x * gate * (1.0F - gate) * inner;
  }
};

template <typename T, int V, typename Function>
struct UnaryMap {
  static constexpr int kWidth = V;
  const T* x;
  std::int64_t x_stride;
  T* y;
  std::int64_t y_stride;

  struct Regs {
    Pack<T, V> x;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    return {Pack<T, V>::Load(x + row * x_stride + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.at[i] = FromFloat<T>(Function::Value(ToFloat(in.x.at[i])));
    out.Store(y + row * y_stride + col);
  }
};

template <typename T>
struct SumOf {
  __device__ __forceinline__ static float Value(float a, float b) { return a + b; }
};

template <typename A, typename B, typename Out, int V, typename Function>
struct BinaryMap {
  static constexpr int kWidth = V;
  const A* a;
  std::int64_t a_stride;
  const B* b;
  std::int64_t b_stride;
  Out* y;
  std::int64_t y_stride;

  struct Regs {
    Pack<A, V> a;
    Pack<B, V> b;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    return {Pack<A, V>::Load(a + row * a_stride + col), Pack<B, V>::Load(b + row * b_stride + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<Out, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      out.at[i] = FromFloat<Out>(Function::Value(ToFloat(in.a.at[i]), ToFloat(in.b.at[i])));
    }
    out.Store(y + row * y_stride + col);
  }
};

// Gradient through an activation and, with kRedo, the activation itself again.
template <typename T, int V, typename Function, bool kRedo>
struct ActivationBackwardMap {
  static constexpr int kWidth = V;
  const T* dy;
  std::int64_t dy_stride;
  const T* x;
  std::int64_t x_stride;
  T* dx;
  std::int64_t dx_stride;
  T* y;
  std::int64_t y_stride;

  struct Regs {
    Pack<T, V> dy, x;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    return {Pack<T, V>::Load(dy + row * dy_stride + col),
            Pack<T, V>::Load(x + row * x_stride + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<T, V> gradient;
    Pack<T, V> value;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float at = ToFloat(in.x.at[i]);
      gradient.at[i] = FromFloat<T>(ToFloat(in.dy.at[i]) * Function::Slope(at));
      if constexpr (kRedo) value.at[i] = FromFloat<T>(Function::Value(at));
    }
    gradient.Store(dx + row * dx_stride + col);
    if constexpr (kRedo) value.Store(y + row * y_stride + col);
  }
};

template <typename T, int V>
struct SwiGluForwardMap {
  static constexpr int kWidth = V;
  const T* gate;
  const T* up;
  std::int64_t in_stride;
  T* h;
  std::int64_t h_stride;

  struct Regs {
    Pack<T, V> gate, up;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    const std::int64_t at = row * in_stride + col;
    return {Pack<T, V>::Load(gate + at), Pack<T, V>::Load(up + at)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      out.at[i] = FromFloat<T>(Silu<T>::Value(ToFloat(in.gate.at[i])) * ToFloat(in.up.at[i]));
    }
    out.Store(h + row * h_stride + col);
  }
};

template <typename T, int V, bool kRedo>
struct SwiGluBackwardMap {
  static constexpr int kWidth = V;
  const T* dh;
  std::int64_t dh_stride;
  const T* gate;
  const T* up;
  std::int64_t in_stride;
  T* d_gate;
  T* d_up;
  std::int64_t out_stride;
  T* h;  // with kRedo
  std::int64_t h_stride;

  struct Regs {
    Pack<T, V> dh, gate, up;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    const std::int64_t at = row * in_stride + col;
    return {Pack<T, V>::Load(dh + row * dh_stride + col), Pack<T, V>::Load(gate + at),
            Pack<T, V>::Load(up + at)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<T, V> gate_out;
    Pack<T, V> up_out;
    Pack<T, V> h_out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float d = ToFloat(in.dh.at[i]);
      const float g = ToFloat(in.gate.at[i]);
      const float s = Sigmoid<T>(g);
      const float up = ToFloat(in.up.at[i]);
      gate_out.at[i] = FromFloat<T>(d * up * s * (1.0F + g * (1.0F - s)));
      up_out.at[i] = FromFloat<T>(d * g * s);
      if constexpr (kRedo) h_out.at[i] = FromFloat<T>(g * s * up);
    }
    const std::int64_t at = row * out_stride + col;
    gate_out.Store(d_gate + at);
    up_out.Store(d_up + at);
    if constexpr (kRedo) h_out.Store(h + row * h_stride + col);
  }
};

template <typename A, typename Out, int V>
struct CastMap {
  static constexpr int kWidth = V;
  const A* from;
  Out* to;

  struct Regs {
    Pack<A, V> value;
  };
  __device__ __forceinline__ Regs Load(std::int64_t, std::int64_t col) const {
    return {Pack<A, V>::Load(from + col)};
  }
  __device__ __forceinline__ void Store(std::int64_t, std::int64_t col, const Regs& in) const {
    Pack<Out, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.at[i] = FromFloat<Out>(ToFloat(in.value.at[i]));
    out.Store(to + col);
  }
};

template <typename T>
struct AddBiasMap {
  static constexpr int kWidth = 1;
  const void* bias;
  DType bias_dtype;
  T* out;
  std::int64_t stride;

  struct Regs {
    float value;
  };
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    const float b = bias_dtype == DType::kBf16
                        ? ToFloat(static_cast<const __nv_bfloat16*>(bias)[col])
                        : static_cast<const float*>(bias)[col];
    return {ToFloat(out[row * stride + col]) + b};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    out[row * stride + col] = FromFloat<T>(in.value);
  }
};

// A column of this map is a rotation: element i of head h's first half, with its partner half a
// head away.
template <typename T, int V>
struct RopeMap {
  static constexpr int kWidth = V;
  T* qkv;
  std::int64_t stride;
  const float* cos;
  const float* sin;
  std::int64_t cos_stride, sin_stride;
  FastDivide half;  // head_dim / 2
  FastDivide seq;
  float sign;  // -1 rotates back

  struct Regs {
    Pack<T, V> first, second;
    Pack<float, V> cos, sin;
  };
  __device__ __forceinline__ T* Address(std::int64_t row, std::int64_t col) const {
    const std::uint32_t head = half.Quotient(static_cast<std::uint32_t>(col));
    return qkv + row * stride + col + static_cast<std::int64_t>(head) * half.divisor;
  }
  __device__ __forceinline__ Regs Load(std::int64_t row, std::int64_t col) const {
    const auto c = static_cast<std::uint32_t>(col);
    const auto t = static_cast<std::uint32_t>(row);
    const std::uint32_t i = c - half.Quotient(c) * half.divisor;
    const std::int64_t position = t - seq.Quotient(t) * seq.divisor;
    const T* at = Address(row, col);
    return {Pack<T, V>::Load(at), Pack<T, V>::Load(at + half.divisor),
            Pack<float, V>::Load(cos + position * cos_stride + i),
            Pack<float, V>::Load(sin + position * sin_stride + i)};
  }
  __device__ __forceinline__ void Store(std::int64_t row, std::int64_t col, const Regs& in) const {
    Pack<T, V> first;
    Pack<T, V> second;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float a = ToFloat(in.first.at[i]);
      const float b = ToFloat(in.second.at[i]);
      const float s = sign * in.sin.at[i];
      first.at[i] = FromFloat<T>(a * in.cos.at[i] - b * s);
      second.at[i] = FromFloat<T>(b * in.cos.at[i] + a * s);
    }
    T* at = Address(row, col);
    first.Store(at);
    second.Store(at + half.divisor);
  }
};

template <typename T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

// Calls f with the widest vector that every matrix allows: kWide<T> elements, or one.
template <typename T, typename F>
cudaError_t WithWidth(std::initializer_list<Matrix> operands, F f) {
  VectorWidth width(kWide<T>);
  for (const Matrix& operand : operands) width.Take(operand);
  if (width.elements() == kWide<T>) return f(std::integral_constant<int, kWide<T>>{});
  return f(std::integral_constant<int, 1>{});
}

bool AllPacked(std::initializer_list<Matrix> operands) {
  for (const Matrix& operand : operands) {
    if (!Packed(operand)) return false;
  }
  return true;
}

template <typename T, typename Function>
cudaError_t Unary(cudaStream_t stream, const Matrix& x, const Matrix& y) {
  const bool flat = AllPacked({x, y});
  return WithWidth<T>({x, y}, [&](auto width) {
    const UnaryMap<T, width(), Function> map{Data<const T>(x), x.stride, Data<T>(y), y.stride};
    return Map<4>(stream, x.rows, x.cols, flat, map);
  });
}

template <typename T, typename Function>
cudaError_t Binary(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& y) {
  const bool flat = AllPacked({a, b, y});
  return WithWidth<T>({a, b, y}, [&](auto width) {
    const BinaryMap<T, T, T, width(), Function> map{Data<const T>(a), a.stride,   Data<const T>(b),
                                                    b.stride,         Data<T>(y), y.stride};
    return Map<2>(stream, a.rows, a.cols, flat, map);
  });
}

template <typename T, typename Function, bool kRedo>
cudaError_t BackwardThrough(cudaStream_t stream, const Matrix& dy, const Matrix& x,
                            const Matrix& dx, const Matrix& y) {
  const Matrix& redo = kRedo ? y : dx;  // an operand that is not there does not narrow the access
  const bool flat = AllPacked({dy, x, dx, redo});
  return WithWidth<T>({dy, x, dx, redo}, [&](auto width) {
    const ActivationBackwardMap<T, width(), Function, kRedo> map{
        Data<const T>(dy), dy.stride, Data<const T>(x), x.stride,
        Data<T>(dx),       dx.stride, Data<T>(y),       y.stride};
    return Map<2>(stream, dy.rows, dy.cols, flat, map);
  });
}

// Element c of `matrix`'s columns on, as a matrix of `cols` columns.
Matrix Columns(const Matrix& matrix, std::int64_t first, std::int64_t cols) {
  Matrix view = matrix;
  view.data = static_cast<std::byte*>(matrix.data) + first * SizeOf(matrix.dtype);
  view.cols = cols;
  return view;
}

}  // namespace

cudaError_t ActivationForward(cudaStream_t stream, Activation kind, const Matrix& x,
                              const Matrix& y) {
  return WithType(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return kind == Activation::kSilu ? Unary<T, Silu<T>>(stream, x, y)
                                     : Unary<T, Gelu<T>>(stream, x, y);
  });
}

cudaError_t ActivationBackward(cudaStream_t stream, Activation kind, const Matrix& dy,
                               const Matrix& x, const Matrix& dx, const Matrix& y) {
  return WithType(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (y.empty()) {
      return kind == Activation::kSilu ? BackwardThrough<T, Silu<T>, false>(stream, dy, x, dx, y)
                                       : BackwardThrough<T, Gelu<T>, false>(stream, dy, x, dx, y);
    }
    return kind == Activation::kSilu ? BackwardThrough<T, Silu<T>, true>(stream, dy, x, dx, y)
                                     : BackwardThrough<T, Gelu<T>, true>(stream, dy, x, dx, y);
  });
}

cudaError_t Add(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& y) {
  return WithType(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Binary<T, SumOf<T>>(stream, a, b, y);
  });
}

cudaError_t SwiGluForward(cudaStream_t stream, const Matrix& gate_up, const Matrix& h) {
  const Matrix gate = Columns(gate_up, 0, h.cols);
  const Matrix up = Columns(gate_up, h.cols, h.cols);
  return WithType(h.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithWidth<T>({gate, up, h}, [&](auto width) {
      const SwiGluForwardMap<T, width()> map{Data<const T>(gate), Data<const T>(up), gate_up.stride,
                                             Data<T>(h), h.stride};
      return Map<2>(stream, h.rows, h.cols, false, map);
    });
  });
}

cudaError_t SwiGluBackward(cudaStream_t stream, const Matrix& dh, const Matrix& gate_up,
                           const Matrix& d_gate_up, const Matrix& h) {
  const Matrix gate = Columns(gate_up, 0, dh.cols);
  const Matrix up = Columns(gate_up, dh.cols, dh.cols);
  const Matrix d_gate = Columns(d_gate_up, 0, dh.cols);
  const Matrix d_up = Columns(d_gate_up, dh.cols, dh.cols);
  return WithType(dh.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto launch = [&](auto redo) {
      return WithWidth<T>({dh, gate, up, d_gate, d_up, redo() ? h : dh}, [&](auto width) {
        const SwiGluBackwardMap<T, width(), redo()> map{
            Data<const T>(dh), dh.stride,       Data<const T>(gate), Data<const T>(up),
            gate_up.stride,    Data<T>(d_gate), Data<T>(d_up),       d_gate_up.stride,
            Data<T>(h),        h.stride};
        return Map<2>(stream, dh.rows, dh.cols, false, map);
      });
    };
    return h.empty() ? launch(std::false_type{}) : launch(std::true_type{});
  });
}

cudaError_t AddBias(cudaStream_t stream, const Vector& bias, const Matrix& out) {
  return WithType(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const AddBiasMap<T> map{bias.data, bias.dtype, Data<T>(out), out.stride};
    return Map<4>(stream, out.rows, out.cols, false, map);
  });
}

cudaError_t Accumulate(cudaStream_t stream, const Vector& from, const Vector& to) {
  return WithType(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithWidth<T>({AsRow(from), AsRow(to)}, [&](auto width) {
      const BinaryMap<T, float, float, width(), SumOf<T>> map{
          Data<const T>(from), 0, Data<const float>(to), 0, Data<float>(to), 0};
      return Map<2>(stream, 1, from.size, true, map);
    });
  });
}

cudaError_t Cast(cudaStream_t stream, const Vector& from, const Vector& to) {
  return WithType(from.dtype, [&](auto from_tag) {
    using A = typename decltype(from_tag)::Type;
    return WithType(to.dtype, [&](auto to_tag) {
      using Out = typename decltype(to_tag)::Type;
      using Narrow = std::conditional_t<sizeof(A) < sizeof(Out), A, Out>;
      return WithWidth<Narrow>({AsRow(from), AsRow(to)}, [&](auto width) {
        const CastMap<A, Out, width()> map{Data<const A>(from), Data<Out>(to)};
        return Map<4>(stream, 1, from.size, true, map);
      });
    });
  });
}

cudaError_t Rope(cudaStream_t stream, const Matrix& qkv, int num_heads, std::int64_t head_dim,
                 std::int64_t seq, const Matrix& cos, const Matrix& sin, bool inverse) {
  const std::int64_t half = head_dim / 2;
  // Every head and half starts a multiple of `half` into the row.
  const Matrix first_half = Columns(qkv, 0, half);
  return WithType(qkv.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithWidth<T>({first_half, cos, sin}, [&](auto width) {
      const RopeMap<T, width()> map{Data<T>(qkv),
                                    qkv.stride,
                                    Data<const float>(cos),
                                    Data<const float>(sin),
                                    cos.stride,
                                    sin.stride,
                                    FastDivide(static_cast<std::uint32_t>(half)),
                                    FastDivide(static_cast<std::uint32_t>(seq)),
                                    inverse ? -1.0F : 1.0F};
      return Map<1>(stream, qkv.rows, num_heads * half, false, map);
    });
  });
}

}  // namespace fsdp::kernels

#ifndef FSDPCTL_WORKER_DEVICE_CPU_SIMD_H_
#define FSDPCTL_WORKER_DEVICE_CPU_SIMD_H_

// Sixteen-lane vectors for the kernel files, written with the compiler's vector extension: the same
// source becomes AVX-512, AVX2 or SSE code. Only kernels_isa.cc and the files it includes may use
// this header; FSDP_ISA names the instruction set and so the namespace. Everything is in an
// anonymous namespace and nothing comes from the standard library but fixed-width integers, so that
// no code for a newer instruction set can be linked into another file.

#include <cstdint>

namespace fsdp::cpu::FSDP_ISA {
namespace {

#define FSDP_INLINE inline __attribute__((always_inline))

using i64 = std::int64_t;
inline constexpr int kLanes = 16;

using F16 = float __attribute__((vector_size(64)));
using I16 = std::int32_t __attribute__((vector_size(64)));
using U16 = std::uint32_t __attribute__((vector_size(64)));
using H16 = std::uint16_t __attribute__((vector_size(32)));
using D16 = double __attribute__((vector_size(128)));

struct Bf16 {
  std::uint16_t bits;
};

// Lane counts: all sixteen, known to the compiler, or fewer at the end of a row.
struct Full {
  constexpr operator int() const { return kLanes; }
};

// f(offset, lanes) over [begin, end) in steps of sixteen.
template <typename F>
FSDP_INLINE void ForLanes(i64 begin, i64 end, F f) {
  i64 i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, Full{});
  if (i < end) f(i, static_cast<int>(end - i));
}

template <typename V, typename S>
FSDP_INLINE V Splat(S value) {
  return V{} + value;
}

// Loads and stores: Load(p, lanes) fills missing lanes with 0; Store leaves them alone.
template <typename V, typename T>
FSDP_INLINE V LoadRaw(const T* p, Full) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <typename V, typename T>
FSDP_INLINE V LoadRaw(const T* p, int lanes) {
  V v = {};
  __builtin_memcpy(&v, p, sizeof(T) * static_cast<unsigned>(lanes));
  return v;
}
template <typename V, typename T>
FSDP_INLINE void StoreRaw(T* p, const V& v, Full) {
  __builtin_memcpy(p, &v, sizeof(V));
}
template <typename V, typename T>
FSDP_INLINE void StoreRaw(T* p, const V& v, int lanes) {
  __builtin_memcpy(p, &v, sizeof(T) * static_cast<unsigned>(lanes));
}

FSDP_INLINE F16 AsFloat(U16 bits) { return reinterpret_cast<F16>(bits); }
FSDP_INLINE U16 AsBits(F16 v) { return reinterpret_cast<U16>(v); }

// Round to nearest even; NaN stays NaN (quiet).
FSDP_INLINE H16 ToBf16(F16 v) {
  const U16 bits = AsBits(v);
  const U16 rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const U16 nan = (bits >> 16) | 0x40U;
  const U16 is_nan = reinterpret_cast<U16>((bits & 0x7FFFFFFFU) > 0x7F800000U);
  return __builtin_convertvector((rounded & ~is_nan) | (nan & is_nan), H16);
}

FSDP_INLINE F16 Load(const float* p, Full n) { return LoadRaw<F16>(p, n); }
FSDP_INLINE F16 Load(const float* p, int n) { return LoadRaw<F16>(p, n); }
FSDP_INLINE D16 Load(const double* p, Full n) { return LoadRaw<D16>(p, n); }
FSDP_INLINE D16 Load(const double* p, int n) { return LoadRaw<D16>(p, n); }
template <typename N>
FSDP_INLINE F16 Load(const Bf16* p, N n) {
  return AsFloat(__builtin_convertvector(LoadRaw<H16>(p, n), U16) << 16);
}
FSDP_INLINE void Store(float* p, F16 v, Full n) { StoreRaw(p, v, n); }
FSDP_INLINE void Store(float* p, F16 v, int n) { StoreRaw(p, v, n); }
FSDP_INLINE void Store(double* p, D16 v, Full n) { StoreRaw(p, v, n); }
FSDP_INLINE void Store(double* p, D16 v, int n) { StoreRaw(p, v, n); }
template <typename N>
FSDP_INLINE void Store(Bf16* p, F16 v, N n) {
  StoreRaw(p, ToBf16(v), n);
}

// The type of sums (A) and its vector (V) for an element type.
template <typename T>
struct Sum {
  using A = float;
  using V = F16;
};
template <>
struct Sum<double> {
  using A = double;
  using V = D16;
};
template <typename T>
using A = typename Sum<T>::A;
template <typename T>
using V = typename Sum<T>::V;

// As stored and read again.
FSDP_INLINE F16 Rounded(F16 v, const float*) { return v; }
FSDP_INLINE D16 Rounded(D16 v, const double*) { return v; }
FSDP_INLINE F16 Rounded(F16 v, const Bf16*) {
  return AsFloat(__builtin_convertvector(ToBf16(v), U16) << 16);
}

// Always in the same order: halves are folded.
template <typename W>
FSDP_INLINE auto HorizontalSum(W v) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}
template <typename W>
FSDP_INLINE auto HorizontalMax(W v) {
  auto best = v[0];
  for (int i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

// exp, relative error below 2e-7 (tests/unit/worker/device/cpu_kernels_test.cc): x = n ln2 + r with
// |r| <= ln2/2, a polynomial in r, and 2^n in two factors so that results near the ends of the
// range, denormals included, come out right. NaN stays NaN.
FSDP_INLINE F16 Exp(F16 x) {
  x = x < -104.0F ? Splat<F16>(-104.0F) : x;
  x = x > 89.0F ? Splat<F16>(89.0F) : x;
  const float magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const F16 shifted = x * 1.44269504F + magic;
  const I16 n = reinterpret_cast<I16>(shifted) - 0x4B400000;
  const F16 nf = shifted - magic;
  F16 r = x - nf * 0.693359375F;  // exact: few bits
  r = r + nf * 2.12194440e-4F;
  F16 p = Splat<F16>(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const I16 half = n >> 1;
  const F16 scale1 = reinterpret_cast<F16>((half + 127) << 23);
  const F16 scale2 = reinterpret_cast<F16>((n - half + 127) << 23);
  return p * scale1 * scale2;
}
FSDP_INLINE D16 Exp(D16 x) {
  D16 y;
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_exp(x[i]);
  return y;
}

template <typename W>
FSDP_INLINE W Sigmoid(W x) {
  return 1 / (1 + Exp(-x));
}

FSDP_INLINE float Sqrt(float x) { return __builtin_sqrtf(x); }
FSDP_INLINE double Sqrt(double x) { return __builtin_sqrt(x); }

// Zeroes the lanes that do not exist, for values that are not 0 there of themselves.
template <typename W>
FSDP_INLINE W Mask(W v, Full) {
  return v;
}
template <typename W>
FSDP_INLINE W Mask(W v, int lanes) {
  for (int i = lanes; i < kLanes; ++i) v[i] = 0;
  return v;
}

template <typename T>
FSDP_INLINE T* Row(void* data, i64 row, i64 stride) {
  return static_cast<T*>(data) + row * stride;
}
template <typename T>
FSDP_INLINE const T* Row(const void* data, i64 row, i64 stride) {
  return static_cast<const T*>(data) + row * stride;
}

}  // namespace
}  // namespace fsdp::cpu::FSDP_ISA

#endif  // FSDPCTL_WORKER_DEVICE_CPU_SIMD_H_

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DEVICE_MATH_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DEVICE_MATH_CUH_

// What every kernel shares: wide loads and stores, conversions, reductions in fixed order, the
// division by an invariant, and the dispatch from dtype to type.

#include <cuda_bf16.h>

#include <cstdint>

#include "worker/device/tensor.h"

namespace fsdp::kernels {

inline constexpr int kNumMultiprocessors = 132;  // sizes grids; any value is correct

template <typename T>
__device__ __forceinline__ float ToFloat(T value) {
  return value;
}
template <>
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ __forceinline__ T FromFloat(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat(float value) {
  return __float2bfloat16_rn(value);
}

constexpr int MinInt(int a, int b) { return a < b ? a : b; }

// V elements moved by accesses of up to 16 bytes.
template <typename T, int V>
struct alignas(MinInt(16, sizeof(T) * V)) Pack {
  T at[V];

  __device__ __forceinline__ static Pack Load(const T* from) {
    return *reinterpret_cast<const Pack*>(from);
  }
  __device__ __forceinline__ void Store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
  __device__ __forceinline__ void Unpack(float (&to)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = ToFloat(at[i]);
  }
};

// 16 bytes as they lie in memory. As a pack of bf16, each element would take a register of its own
// for as long as it waits.
struct Words {
  uint4 words;

  template <typename T>
  __device__ __forceinline__ static Words Load(const T* from) {
    return {*reinterpret_cast<const uint4*>(from)};
  }
  template <int V>
  __device__ __forceinline__ void Unpack(float (&to)[V]) const {
    const std::uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (V == 8) {  // bf16: the upper half of an f32
        to[2 * i] = __uint_as_float(all[i] << 16);
        to[2 * i + 1] = __uint_as_float(all[i] & 0xffff0000U);
      } else {
        to[i] = __uint_as_float(all[i]);
      }
    }
  }
};

template <typename T, int V>
__device__ __forceinline__ void LoadFloats(const T* from, float (&to)[V]) {
  const auto pack = Pack<T, V>::Load(from);
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = ToFloat(pack.at[i]);
}
template <typename T, int V>
__device__ __forceinline__ void StoreFloats(T* to, const float (&from)[V]) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) pack.at[i] = FromFloat<T>(from[i]);
  pack.Store(to);
}

// Division by a run-time invariant below 2^31, for numerators below 2^31.
struct FastDivide {
  std::uint32_t divisor = 1, multiplier = 0, shift = 0;

  FastDivide() = default;
  explicit FastDivide(std::uint32_t value) : divisor(value) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value)) / value + 1);
  }
  __device__ __forceinline__ std::uint32_t Quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

// One element of a norm's output (mean = bias = 0 for RMSNorm), every rounding spelled out: forward
// kernels and the backward ones that write it again give the same bits.
__device__ __forceinline__ float Normalized(float x, float mean, float rstd, float weight,
                                            float bias) {
  return __fmaf_rn(__fmul_rn(__fsub_rn(x, mean), rstd), weight, bias);
}

template <typename T>
struct SumOp {
  __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct MaxOp {
  __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};

template <typename T, typename Op>
__device__ __forceinline__ T WarpReduce(T value, Op op) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

// Every thread gets the reduction over the block; blockDim.x is a multiple of 32, `shared` holds 32
// values and may be reused after the call.
template <typename T, typename Op>
__device__ __forceinline__ T BlockReduce(T value, Op op, T identity, T* shared) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int num_warps = blockDim.x / 32;
  value = WarpReduce(value, op);
  if (num_warps == 1) return value;
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return WarpReduce(lane < num_warps ? shared[lane] : identity, op);
}

// Widest vector (elements) for which every given address and pitch is a multiple of its bytes, up
// to `widest` bytes per access and `limit` elements.
class VectorWidth {
 public:
  explicit VectorWidth(int limit) : width_(limit) {}
  void Take(const void* data, std::size_t element_bytes) {
    Divide(reinterpret_cast<std::uintptr_t>(data) / element_bytes, element_bytes,
           reinterpret_cast<std::uintptr_t>(data) % element_bytes != 0);
  }
  void Take(std::int64_t elements) {
    while (width_ > 1 && elements % width_ != 0) width_ /= 2;
  }
  void Take(const Matrix& matrix) {
    if (matrix.data == nullptr) return;
    Take(matrix.data, SizeOf(matrix.dtype));
    Take(matrix.cols);
    if (matrix.rows > 1) Take(matrix.stride);
  }
  [[nodiscard]] int elements() const { return width_; }

 private:
  // An access is at most 16 bytes wide, so no address needs more alignment than that.
  void Divide(std::uintptr_t element, std::size_t element_bytes, bool odd) {
    if (odd) width_ = 1;
    while (width_ > 1) {
      const std::size_t need = MinInt(16, static_cast<int>(width_ * element_bytes));
      if (element * element_bytes % need == 0) return;
      width_ /= 2;
    }
  }

  int width_;
};

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls f(TypeTag<T>) for f32 or bf16.
template <typename F>
cudaError_t WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kBf16:
      return f(TypeTag<__nv_bfloat16>{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T>
T* Data(const Matrix& matrix) {
  return static_cast<T*>(matrix.data);
}
template <typename T>
T* Data(const Vector& vector) {
  return static_cast<T*>(vector.data);
}

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DEVICE_MATH_CUH_

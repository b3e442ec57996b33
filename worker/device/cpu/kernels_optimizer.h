#ifndef FSDPCTL_WORKER_DEVICE_CPU_KERNELS_OPTIMIZER_H_
#define FSDPCTL_WORKER_DEVICE_CPU_KERNELS_OPTIMIZER_H_

// AdamW, the split master and gradient statistics. Included by kernels_isa.cc only (see simd.h).

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/simd.h"

namespace fsdp::cpu::FSDP_ISA {
namespace {

// master bits = (compute bits << 16) + remainder as signed 16-bit. Halfway cases go away from zero,
// because a remainder of +32768 does not exist.
FSDP_INLINE void Split(F16 master, H16* compute, H16* remainder) {
  const U16 bits = AsBits(master);
  const U16 high = (bits + 0x8000U) >> 16;
  *compute = __builtin_convertvector(high, H16);
  *remainder = __builtin_convertvector((bits - (high << 16)) & 0xFFFFU, H16);
}
FSDP_INLINE F16 Join(H16 compute, H16 remainder) {
  const U16 low = __builtin_convertvector(remainder, U16);
  const U16 extended = (low ^ 0x8000U) - 0x8000U;
  return AsFloat((__builtin_convertvector(compute, U16) << 16) + extended);
}

void SplitMaster(const float* master, std::uint16_t* compute, std::uint16_t* remainder, i64 begin,
                 i64 end) {
  ForLanes(begin, end, [&](i64 i, auto n) {
    H16 high;
    H16 low;
    Split(Load(master + i, n), &high, &low);
    StoreRaw(compute + i, high, n);
    StoreRaw(remainder + i, low, n);
  });
}

void JoinMaster(const std::uint16_t* compute, const std::uint16_t* remainder, float* master,
                i64 begin, i64 end) {
  ForLanes(begin, end, [&](i64 i, auto n) {
    Store(master + i, Join(LoadRaw<H16>(compute + i, n), LoadRaw<H16>(remainder + i, n)), n);
  });
}

template <typename W>
FSDP_INLINE W SqrtLanes(W v) {
  for (int i = 0; i < kLanes; ++i) v[i] = Sqrt(v[i]);
  return v;
}

// The constants of one update, in the type of sums.
template <typename T>
struct AdamWConstants {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, inverse_sqrt_bias2,
      decay_factor, grad_scale;
  explicit AdamWConstants(const AdamWArgs& p)
      : beta1(static_cast<T>(p.beta1)),
        one_minus_beta1(static_cast<T>(1 - p.beta1)),
        beta2(static_cast<T>(p.beta2)),
        one_minus_beta2(static_cast<T>(1 - p.beta2)),
        eps(static_cast<T>(p.eps)),
        step_size(static_cast<T>(p.step_size)),
        inverse_sqrt_bias2(static_cast<T>(p.inverse_sqrt_bias2)),
        decay_factor(static_cast<T>(p.decay_factor)),
        grad_scale(static_cast<T>(p.grad_scale)) {}
};

// torch.optim.AdamW: decay first, then the step with bias-corrected moments.
template <typename T, typename W>
FSDP_INLINE W AdamWLanes(const AdamWConstants<T>& k, W weight, W* m, W* v, W grad) {
  const W g = grad * k.grad_scale;
  *m = *m * k.beta1 + g * k.one_minus_beta1;
  *v = *v * k.beta2 + (g * g) * k.one_minus_beta2;
  const W denominator = SqrtLanes(*v) * k.inverse_sqrt_bias2 + k.eps;
  return weight * k.decay_factor - k.step_size * (*m / denominator);
}

template <typename T>
void AdamW(const AdamWArgs& p, i64 begin, i64 end) {
  const AdamWConstants<T> k(p);
  T* master = static_cast<T*>(p.master);
  T* m = static_cast<T*>(p.m);
  T* v = static_cast<T*>(p.v);
  const T* grad = static_cast<const T*>(p.grad);
  ForLanes(begin, end, [&](i64 i, auto n) {
    V<T> new_m = Load(m + i, n);
    V<T> new_v = Load(v + i, n);
    const V<T> w = AdamWLanes(k, Load(master + i, n), &new_m, &new_v, Load(grad + i, n));
    Store(master + i, w, n);
    Store(m + i, new_m, n);
    Store(v + i, new_v, n);
  });
}

void AdamWSplit(const AdamWArgs& p, i64 begin, i64 end) {
  const AdamWConstants<float> k(p);
  std::uint16_t* compute = static_cast<std::uint16_t*>(p.compute);
  std::uint16_t* remainder = static_cast<std::uint16_t*>(p.remainder);
  float* m = static_cast<float*>(p.m);
  float* v = static_cast<float*>(p.v);
  const float* grad = static_cast<const float*>(p.grad);
  ForLanes(begin, end, [&](i64 i, auto n) {
    F16 new_m = Load(m + i, n);
    F16 new_v = Load(v + i, n);
    H16 high = LoadRaw<H16>(compute + i, n);
    H16 low = LoadRaw<H16>(remainder + i, n);
    Split(AdamWLanes(k, Join(high, low), &new_m, &new_v, Load(grad + i, n)), &high, &low);
    StoreRaw(compute + i, high, n);
    StoreRaw(remainder + i, low, n);
    Store(m + i, new_m, n);
    Store(v + i, new_v, n);
  });
}

void AdamWF32(const AdamWArgs& p, i64 begin, i64 end) {
  if (p.remainder != nullptr) {
    AdamWSplit(p, begin, end);
  } else {
    AdamW<float>(p, begin, end);
  }
}

// x - x is 0 for finite x and NaN otherwise.
template <typename T>
double SumSquares(const void* data, i64 begin, i64 end, bool* finite) {
  const T* x = static_cast<const T*>(data);
  D16 total = {};
  D16 probe = {};
  ForLanes(begin, end, [&](i64 i, auto n) {
    const D16 v = ConvertLanes(Load(x + i, n), static_cast<const D16*>(nullptr));
    total += v * v;
    probe += v - v;
  });
  if (!(HorizontalSum(probe) == 0)) *finite = false;
  return HorizontalSum(total);
}

}  // namespace
}  // namespace fsdp::cpu::FSDP_ISA

#endif  // FSDPCTL_WORKER_DEVICE_CPU_KERNELS_OPTIMIZER_H_

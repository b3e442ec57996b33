#include "worker/device/cpu/kernels.h"

namespace fsdp::cpu {

const KernelSet& BestKernels() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return avx512::GetKernelSet();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return avx2::GetKernelSet();
  }
  return baseline::GetKernelSet();
}

const Kernels& KernelsFor(const KernelSet& set, DType dtype) {
  if (dtype == DType::kF64) return set.f64;
  return dtype == DType::kBf16 ? set.bf16 : set.f32;
}

}  // namespace fsdp::cpu

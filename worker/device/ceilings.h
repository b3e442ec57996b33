#ifndef FSDPCTL_WORKER_DEVICE_CEILINGS_H_
#define FSDPCTL_WORKER_DEVICE_CEILINGS_H_

namespace fsdp {

// What a device reaches at best, as measured when the trainer starts.
struct DeviceCeilings {
  double fp32_flops_per_second = 0;  // a square f32 product
  double bf16_flops_per_second = 0;  // the same in bf16 (by conversion where a CPU has none)
  double copy_bytes_per_second = 0;  // bytes read plus bytes written, far beyond the caches
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CEILINGS_H_

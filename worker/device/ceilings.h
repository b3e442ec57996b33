#ifndef FSDPCTL_WORKER_DEVICE_CEILINGS_H_
#define FSDPCTL_WORKER_DEVICE_CEILINGS_H_

namespace fsdp {

// FLOPs per second of a square product of one dtype; 0: the device has none, or it was not
// measured.
struct MatMulCeiling {
  double alone = 0;
  // Back to back until a GPU's power limit has set its clock.
  double sustained = 0;
};

// What a device reaches at best, as measured when the trainer starts.
struct DeviceCeilings {
  MatMulCeiling fp32;
  MatMulCeiling bf16;                // by conversion where a CPU has none
  MatMulCeiling fp8;                 // e4m3 into bf16
  double copy_bytes_per_second = 0;  // bytes read plus bytes written, far beyond the caches
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CEILINGS_H_

#ifndef FSDPCTL_WORKER_DAEMON_NVML_HEALTH_H_
#define FSDPCTL_WORKER_DAEMON_NVML_HEALTH_H_

// The part of NVML that tells a device's health. The few declarations needed are here, so that no
// CUDA header is. Every call is optional: an older driver lacks some, a virtual GPU refuses some.

#include <cstdint>

#include "worker/daemon/device_health.h"

namespace fsdp::daemon {

// nvmlFieldValue_t.
struct NvmlFieldValue {
  unsigned int field_id;
  unsigned int scope_id;
  long long timestamp;     // NOLINT(google-runtime-int): NVML's types.
  long long latency_usec;  // NOLINT(google-runtime-int)
  int value_type;
  int result;
  union {
    double as_double;
    unsigned int as_uint;
    unsigned long long as_ull;  // NOLINT(google-runtime-int)
    long long as_sll;           // NOLINT(google-runtime-int)
  } value;
};

struct NvmlHealth {
  using Device = void*;
  using Ull = unsigned long long;  // NOLINT(google-runtime-int)
  int (*power)(Device, unsigned int* milliwatts) = nullptr;
  int (*temperature)(Device, int sensor, unsigned int* celsius) = nullptr;
  int (*clock)(Device, int type, unsigned int* megahertz) = nullptr;
  int (*throttle_reasons)(Device, Ull* reasons) = nullptr;
  int (*ecc_errors)(Device, int type, int counter, Ull* count) = nullptr;
  int (*field_values)(Device, int count, NvmlFieldValue* values) = nullptr;

  // Those that `library`, a handle of dlopen, has.
  static NvmlHealth Resolve(void* library);
  // What the driver tells of `device` now. A few hundred microseconds.
  [[nodiscard]] DeviceReading Read(Device device) const;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_NVML_HEALTH_H_

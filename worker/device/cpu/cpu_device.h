#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_DEVICE_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_DEVICE_H_

// The CPU backend behind CreateCpuDevice (worker/device/device.h), with the two choices that tests
// make for themselves: the instruction set of the loops and how bf16 products are formed.

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/device/cpu/cpu_matmul.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/device.h"

namespace fsdp::cpu {

struct CpuBackendOptions {
  CpuDeviceOptions device;
  const KernelSet* kernels = nullptr;  // null: the best that the machine has
  std::optional<Bf16Path> bf16_path;   // empty: what the CPU can do
};

//   INVALID_ARGUMENT  num_threads is negative or above 1024, or ranks_on_machine is below 1.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuBackend(const CpuBackendOptions& options);

// Cores that this process may run on.
int AvailableCores();

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_DEVICE_H_

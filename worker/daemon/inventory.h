#ifndef FSDPCTL_WORKER_DAEMON_INVENTORY_H_
#define FSDPCTL_WORKER_DAEMON_INVENTORY_H_

// Which devices this host has. CUDA devices are found through NVML, opened at run time: a host
// without it has none, which is no error.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "worker/daemon/device_health.h"

namespace fsdp::daemon {

// What of NVML the daemon uses. Thread-safe.
class Nvml {
 public:
  struct Process {
    std::int64_t pid = 0;
    std::int64_t used_bytes = 0;
  };

  // nullptr: no NVIDIA driver on this host.
  static std::unique_ptr<Nvml> Open();
  virtual ~Nvml() = default;

  [[nodiscard]] virtual int device_count() const = 0;
  // With its memory use at this moment.
  //   NOT_FOUND  no such index
  //   INTERNAL   NVML's error text
  virtual absl::StatusOr<fsdp::v1::DeviceInfo> Describe(int index) const = 0;
  // Processes that hold memory on the device, as far as the driver tells (none from inside a
  // container).
  virtual absl::StatusOr<std::vector<Process>> Processes(int index) const = 0;
  // Its health at this moment, as far as the driver tells; by default nothing.
  //   NOT_FOUND  no such index
  virtual absl::StatusOr<DeviceReading> ReadHealth(int /*index*/) const { return DeviceReading(); }
};

// What `--devices` asks for.
struct DeviceRequest {
  enum class Kind { kAll, kCpu, kCuda };
  Kind kind = Kind::kAll;
  // kCpu: how many slots.
  int num_slots = 1;
  // kCuda: which.
  int index = 0;
};

// "all", "cpu" (one slot), "cpu:N", "cuda:I".
//   INVALID_ARGUMENT  anything else; N must be 1..1024
absl::StatusOr<DeviceRequest> ParseDevices(const std::string& text);

// The devices that `request` means: all CUDA devices, or the named one, or CPU slots. "all" on a
// host without CUDA devices is an error that says why there are none (no driver, or the driver has
// no device) and names the remedy: CPU slots are taken only when asked for.
//   NOT_FOUND  there is no such device
absl::StatusOr<std::vector<fsdp::v1::DeviceInfo>> FindDevices(const DeviceRequest& request,
                                                              const Nvml* nvml);

// The devices of `num_workers` workers: `devices` as they are for 0, the first ones when there are
// more of them, each in turn when there are fewer, which takes `share_device`.
//   INVALID_ARGUMENT  more workers than devices without share_device, CPU slots, or beyond 1024
absl::StatusOr<std::vector<fsdp::v1::DeviceInfo>> SpreadWorkers(
    std::vector<fsdp::v1::DeviceInfo> devices, int num_workers, bool share_device);

// For programs, a line each: {"type": "cuda", "index": 0, "model": …, "uuid": …, "memory_bytes": …}
std::string DeviceLines(const std::vector<fsdp::v1::DeviceInfo>& devices);

// CPU slot `index` of `num_slots`: processor name, its share of the host's memory and threads:
// the slots together have what the host has, so admission counts nothing twice.
fsdp::v1::DeviceInfo CpuSlot(int index, int num_slots);

// "cpu-3", "cuda-0".
std::string DeviceLabel(const fsdp::v1::DeviceInfo& device);

// Why no rank may be placed on a device that uses `used_bytes` while none of our trainers runs;
// empty: it may. An idle GPU uses some hundred MiB for the driver itself, and contexts of other
// processes come on top.
std::string ForeignMemoryReason(const fsdp::v1::DeviceInfo& device,
                                const std::vector<Nvml::Process>& processes);

// This host's name.
std::string HostName();

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_INVENTORY_H_

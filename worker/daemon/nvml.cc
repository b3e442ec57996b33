// Nvml over libnvidia-ml.so.1. The few declarations needed are here, so that no CUDA header is.

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/daemon/inventory.h"
#include "worker/daemon/nvml_health.h"

namespace fsdp::daemon {
namespace {

using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kInsufficientSize = 7;

struct NvmlMemory {
  unsigned long long total;  // NOLINT(google-runtime-int): NVML's types.
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};

// nvmlProcessInfo_t of the _v3 calls.
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used_bytes;  // NOLINT(google-runtime-int)
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

struct Api {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*count)(unsigned int*) = nullptr;
  NvmlReturn (*handle)(unsigned int, NvmlDevice*) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*driver)(char*, unsigned int) = nullptr;
  NvmlReturn (*nvlink)(NvmlDevice, unsigned int, unsigned int*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
};

template <typename F>
bool Resolve(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(::dlsym(library, name));
  return *function != nullptr;
}

bool ResolveAll(void* library, Api* api) {
  // Without these two a device is still usable.
  Resolve(library, "nvmlDeviceGetNvLinkState", &api->nvlink);
  Resolve(library, "nvmlDeviceGetComputeRunningProcesses_v3", &api->processes);
  return Resolve(library, "nvmlInit_v2", &api->init) &&
         Resolve(library, "nvmlShutdown", &api->shutdown) &&
         Resolve(library, "nvmlErrorString", &api->error_string) &&
         Resolve(library, "nvmlDeviceGetCount_v2", &api->count) &&
         Resolve(library, "nvmlDeviceGetHandleByIndex_v2", &api->handle) &&
         Resolve(library, "nvmlDeviceGetName", &api->name) &&
         Resolve(library, "nvmlDeviceGetUUID", &api->uuid) &&
         Resolve(library, "nvmlDeviceGetMemoryInfo", &api->memory) &&
         Resolve(library, "nvmlSystemGetDriverVersion", &api->driver);
}

class RealNvml final : public Nvml {
 public:
  RealNvml(void* library, const Api& api, int count)
      : library_(library), api_(api), health_(NvmlHealth::Resolve(library)), count_(count) {}
  ~RealNvml() override {
    api_.shutdown();
    ::dlclose(library_);
  }

  [[nodiscard]] int device_count() const override { return count_; }

  absl::StatusOr<v1::DeviceInfo> Describe(int index) const override {
    ASSIGN_OR_RETURN(NvmlDevice handle, Handle(index));
    std::array<char, 128> text{};
    v1::DeviceInfo device;
    device.set_type(v1::DEVICE_TYPE_CUDA);
    device.set_index(index);
    RETURN_IF_ERROR(ToStatus(api_.uuid(handle, text.data(), text.size()), "nvmlDeviceGetUUID"));
    device.set_uuid(text.data());
    RETURN_IF_ERROR(ToStatus(api_.name(handle, text.data(), text.size()), "nvmlDeviceGetName"));
    device.set_model(text.data());
    NvmlMemory memory{};
    RETURN_IF_ERROR(ToStatus(api_.memory(handle, &memory), "nvmlDeviceGetMemoryInfo"));
    device.set_memory_bytes(static_cast<std::int64_t>(memory.total));
    device.set_memory_used_bytes(static_cast<std::int64_t>(memory.used));
    if (api_.driver(text.data(), text.size()) == kSuccess) device.set_driver_version(text.data());
    unsigned int active = 0;
    // NVLink within one host: a device with a live link shares the host's domain.
    if (api_.nvlink != nullptr && api_.nvlink(handle, 0, &active) == kSuccess && active != 0) {
      device.set_nvlink_domain(HostName());
    }
    return device;
  }

  absl::StatusOr<std::vector<Process>> Processes(int index) const override {
    ASSIGN_OR_RETURN(NvmlDevice handle, Handle(index));
    if (api_.processes == nullptr) return std::vector<Process>();
    std::vector<NvmlProcess> found(64);
    auto count = static_cast<unsigned int>(found.size());
    NvmlReturn result = api_.processes(handle, &count, found.data());
    if (result == kInsufficientSize) {
      found.resize(count + 16);
      count = static_cast<unsigned int>(found.size());
      result = api_.processes(handle, &count, found.data());
    }
    RETURN_IF_ERROR(ToStatus(result, "nvmlDeviceGetComputeRunningProcesses"));
    std::vector<Process> processes;
    for (unsigned int i = 0; i < count; ++i) {
      // All ones: the driver does not tell.
      const bool known = found[i].used_bytes != ~0ULL;
      processes.push_back(
          {found[i].pid, known ? static_cast<std::int64_t>(found[i].used_bytes) : 0});
    }
    return processes;
  }

  absl::StatusOr<DeviceReading> ReadHealth(int index) const override {
    ASSIGN_OR_RETURN(NvmlDevice handle, Handle(index));
    return health_.Read(handle);
  }

 private:
  absl::StatusOr<NvmlDevice> Handle(int index) const {
    if (index < 0 || index >= count_) {
      return absl::NotFoundError(absl::StrCat("no CUDA device ", index, ", there are ", count_));
    }
    NvmlDevice handle = nullptr;
    RETURN_IF_ERROR(ToStatus(api_.handle(static_cast<unsigned int>(index), &handle),
                             "nvmlDeviceGetHandleByIndex"));
    return handle;
  }

  absl::Status ToStatus(NvmlReturn result, const char* call) const {
    if (result == kSuccess) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(call, ": ", api_.error_string(result)));
  }

  void* const library_;
  const Api api_;
  const NvmlHealth health_;
  const int count_;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::Open() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  Api api;
  unsigned int count = 0;
  if (!ResolveAll(library, &api) || api.init() != kSuccess) {
    LOG_WARNING("libnvidia-ml.so.1 is here but cannot be used: no CUDA devices");
    ::dlclose(library);
    return nullptr;
  }
  if (const NvmlReturn result = api.count(&count); result != kSuccess) {
    LOG_WARNING("nvmlDeviceGetCount: %s: no CUDA devices", api.error_string(result));
    count = 0;
  }
  return std::make_unique<RealNvml>(library, api, static_cast<int>(count));
}

}  // namespace fsdp::daemon

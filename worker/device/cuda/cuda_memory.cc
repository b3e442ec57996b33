#include "worker/device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace fsdp {

// The four calls that are needed, declared as nvml.h does.
struct CudaMemoryMeter::Nvml {
  struct Memory {
    unsigned long long total, free, used;
  };
  void* library = nullptr;
  void* device = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;

  ~Nvml() {
    if (device != nullptr) shutdown();
    if (library != nullptr) dlclose(library);
  }

  template <typename Function>
  bool Find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  bool Open(const char* bus_id) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || !Find("nvmlInit_v2", init) || !Find("nvmlShutdown", shutdown) ||
        !Find("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) ||
        !Find("nvmlDeviceGetMemoryInfo", memory) || init() != 0) {
      return false;
    }
    if (by_bus_id(bus_id, &device) == 0) return true;
    device = nullptr;
    shutdown();
    return false;
  }
};

CudaMemoryMeter::CudaMemoryMeter(int ordinal) {
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal) !=
      cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  nvml_ = std::make_unique<Nvml>();
  if (!nvml_->Open(bus_id.data())) nvml_.reset();
  before_bytes_ = UsedBytes();
}

CudaMemoryMeter::~CudaMemoryMeter() = default;

std::int64_t CudaMemoryMeter::UsedBytes() const {
  Nvml::Memory memory{};
  if (nvml_ == nullptr || nvml_->memory(nvml_->device, &memory) != 0) return 0;
  return static_cast<std::int64_t>(memory.used);
}

std::int64_t CudaMemoryMeter::AddedBytes() {
  const auto now = std::chrono::steady_clock::now();
  if (added_bytes_ > 0 && now - looked_ < kInterval) return added_bytes_;
  looked_ = now;
  added_bytes_ = std::max<std::int64_t>(0, UsedBytes() - before_bytes_);
  return added_bytes_;
}

}  // namespace fsdp

#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDA_MEMORY_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDA_MEMORY_H_

// How much of a GPU's memory is in use, by NVML, which sees it before this process has a context.
// NVML is opened at run time.

#include <chrono>
#include <cstdint>
#include <memory>

namespace fsdp {

// What this process has added to a device's use since this object was made: make it before the
// device's first CUDA call, and the context and libraries are in it. Other processes that come or
// go meanwhile are counted too, so it is exact on a device of one's own.
// Thread rule: one thread.
class CudaMemoryMeter {
 public:
  // `ordinal` of the devices that this process sees.
  explicit CudaMemoryMeter(int ordinal);
  ~CudaMemoryMeter();
  CudaMemoryMeter(const CudaMemoryMeter&) = delete;
  CudaMemoryMeter& operator=(const CudaMemoryMeter&) = delete;

  // 0: NVML is missing or does not answer. Looks at most once in `kInterval`, for callers that ask
  // in every step.
  [[nodiscard]] std::int64_t AddedBytes();

 private:
  static constexpr std::chrono::milliseconds kInterval{500};
  struct Nvml;

  [[nodiscard]] std::int64_t UsedBytes() const;

  std::unique_ptr<Nvml> nvml_;
  std::int64_t before_bytes_ = 0;
  std::int64_t added_bytes_ = 0;
  std::chrono::steady_clock::time_point looked_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDA_MEMORY_H_

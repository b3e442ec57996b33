#ifndef FSDPCTL_TESTS_BENCH_CPU_MATMUL_BENCH_SUPPORT_H_
#define FSDPCTL_TESTS_BENCH_CPU_MATMUL_BENCH_SUPPORT_H_

// Timing and memory of the CPU benches.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/device/device.h"
#include "worker/device/ops.h"

namespace fsdp {

// A whole f32 training step of a dim-1024 llama of `layers` layers at sequence 512, made of the
// device's operations; prints seconds per operation and the ratio to the step's matmul FLOPs at
// the rate of the same matmuls. Returns the exit status.
int RunStepBench(Device& device, int layers);

// Seconds of the clock that all figures use: the wall's, or this process' CPU time, which gives
// sound ratios for one thread on a machine that others keep busy.
inline bool use_cpu_clock = false;
inline double Now() {
  timespec time = {};
  clock_gettime(use_cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double ShortestSeconds(const std::function<void()>& run) {
  run();
  double shortest = 1e9;
  const double stop = Now() + 0.3;
  for (int i = 0; i < 3 || Now() < stop; ++i) {
    const double begin = Now();
    run();
    shortest = std::min(shortest, Now() - begin);
  }
  return shortest;
}

inline void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

// Memory filled with small values, so that no product meets denormals.
class Memory {
 public:
  explicit Memory(Device& device) : device_(device) {}
  Matrix NewMatrix(DType dtype, std::int64_t rows, std::int64_t cols) {
    return Matrix::Packed(New(dtype, rows * cols), dtype, rows, cols);
  }
  Vector NewVector(DType dtype, std::int64_t size) { return {New(dtype, size), dtype, size}; }
  void* New(DType dtype, std::int64_t size) {
    auto buffer = device_.Allocate(static_cast<std::size_t>(size) * SizeOf(dtype));
    Require(buffer.status());
    buffers_.push_back(std::move(*buffer));
    void* data = buffers_.back()->data();
    for (std::int64_t i = 0; i < size; ++i) {
      const float value = static_cast<float>((i * 7919) % 201 - 100) * 0.001F;
      if (dtype == DType::kF32) static_cast<float*>(data)[i] = value;
      if (dtype == DType::kBf16)
        static_cast<std::uint16_t*>(data)[i] = i % 2 == 0 ? 0x3C00 : 0xBC10;
    }
    return data;
  }
  std::span<std::byte> Scratch(std::size_t size_bytes) {
    auto buffer = device_.Allocate(size_bytes);
    Require(buffer.status());
    buffers_.push_back(std::move(*buffer));
    return {static_cast<std::byte*>(buffers_.back()->data()), size_bytes};
  }

 private:
  Device& device_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

inline Transpose If(bool yes) { return yes ? Transpose::kYes : Transpose::kNo; }

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_BENCH_CPU_MATMUL_BENCH_SUPPORT_H_

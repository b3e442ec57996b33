#ifndef FSDPCTL_TESTS_GPU_BENCH_SUPPORT_H_
#define FSDPCTL_TESTS_GPU_BENCH_SUPPORT_H_

// Timing of operations on a device: medians over rounds, each round one pass over several sets of
// operands, so that no set is still in the L2 cache when its turn comes again.

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/device/ops.h"

namespace fsdp::bench {

// Prints the status and ends the process unless it is OK: a benchmark has no caller to tell.
void Must(const absl::Status& status, const std::string& what);

// Device memory filled with random values; freed with the arena.
class Arena {
 public:
  explicit Arena(Device& device);

  // Uniform in (-1, 1).
  Matrix Random(DType dtype, std::int64_t rows, std::int64_t cols);
  Vector RandomVector(DType dtype, std::int64_t size);
  std::span<std::int32_t> Ids(std::int64_t size, std::int32_t limit);
  std::span<std::byte> Bytes(std::size_t size_bytes);

 private:
  void* Allocate(std::size_t size_bytes);
  void Fill(void* to, DType dtype, std::int64_t size);

  Device& device_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  Vector source_;  // random f32 values that tensors are filled from
  std::mt19937 random_{20240607};
};

// How many sets of operands of `bytes_per_set` are used in turn: over 4 x the L2 cache in all.
int NumSets(std::int64_t bytes_per_set);

// Median seconds of one call of `run(set)`, set = 0 .. num_sets - 1.
double MedianSeconds(Device& device, int num_sets, const std::function<absl::Status(int)>& run,
                     int rounds = 30);

// Median seconds in which a device-to-device copy reads bytes / 2 and writes bytes / 2.
double CopySeconds(Device& device, std::int64_t bytes);

void BenchBandwidth(Device& device);
void BenchAttention(int rounds);
void BenchMatMul(Device& device);
void BenchEpilogue(Device& device);

}  // namespace fsdp::bench

#endif  // FSDPCTL_TESTS_GPU_BENCH_SUPPORT_H_

#include "worker/device/cuda/cuda_ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "proto/support/status.h"
#include "worker/device/ops.h"

namespace fsdp {
namespace {

constexpr std::int64_t kBf16Edge = 8192;
constexpr std::int64_t kF32Edge = 4096;
constexpr std::int64_t kCopyBytes = std::int64_t{256} << 20;  // many times an L2 cache
constexpr int kRuns = 8;

// The shortest of kRuns, by the device's clock, after one that warms up.
absl::StatusOr<double> ShortestSeconds(Device& device, const std::function<absl::Status()>& run) {
  Stream& stream = device.compute();
  ASSIGN_OR_RETURN(const auto begin, device.CreateEvent());
  ASSIGN_OR_RETURN(const auto end, device.CreateEvent());
  double shortest = 0;
  for (int i = 0; i <= kRuns; ++i) {
    RETURN_IF_ERROR(device.Record(*begin, stream));
    RETURN_IF_ERROR(run());
    RETURN_IF_ERROR(device.Record(*end, stream));
    RETURN_IF_ERROR(device.Synchronize(stream));
    ASSIGN_OR_RETURN(const double seconds, device.ElapsedSeconds(*begin, *end));
    shortest = i <= 1 ? seconds : std::min(shortest, seconds);
  }
  return std::max(shortest, 1e-9);
}

// Random bits with exponents near 1: a matrix unit draws less power, and runs faster, on zeros.
absl::Status FillRandom(Device& device, std::byte* to, std::int64_t bytes, DType dtype) {
  std::vector<std::uint32_t> values(std::size_t{1} << 20);
  std::mt19937 random(1);
  const std::uint32_t mask = dtype == DType::kBf16 ? 0x807f807fU : 0x807fffffU;
  const std::uint32_t one = dtype == DType::kBf16 ? 0x3f803f80U : 0x3f800000U;
  for (std::uint32_t& value : values) value = (random() & mask) | one;
  const auto block = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
  for (std::int64_t at = 0; at < bytes; at += block) {
    RETURN_IF_ERROR(device.Copy(to + at, values.data(),
                                static_cast<std::size_t>(std::min(block, bytes - at)),
                                device.compute()));
  }
  return device.Synchronize(device.compute());
}

absl::StatusOr<double> ProductRate(Device& device, std::byte* memory, DType dtype,
                                   std::int64_t edge) {
  const std::int64_t bytes = edge * edge * static_cast<std::int64_t>(SizeOf(dtype));
  RETURN_IF_ERROR(FillRandom(device, memory, 2 * bytes, dtype));
  const auto matrix = [&](std::int64_t index) {
    return Matrix::Packed(memory + index * bytes, dtype, edge, edge);
  };
  ASSIGN_OR_RETURN(const double seconds, ShortestSeconds(device, [&] {
                     return device.ops().MatMul(device.compute(), matrix(0), Transpose::kNo,
                                                matrix(1), Transpose::kYes, {}, matrix(2), false);
                   }));
  const auto n = static_cast<double>(edge);
  return 2 * n * n * n / seconds;
}

}  // namespace

absl::StatusOr<DeviceCeilings> MeasureCudaCeilings(Device& device) {
  constexpr std::int64_t kBytes =
      std::max({3 * kBf16Edge * kBf16Edge * 2, 3 * kF32Edge * kF32Edge * 4, 2 * kCopyBytes});
  ASSIGN_OR_RETURN(const auto buffer, device.Allocate(static_cast<std::size_t>(kBytes)));
  auto* memory = static_cast<std::byte*>(buffer->data());
  DeviceCeilings ceilings;
  ASSIGN_OR_RETURN(ceilings.fp32_flops_per_second,
                   ProductRate(device, memory, DType::kF32, kF32Edge));
  ASSIGN_OR_RETURN(ceilings.bf16_flops_per_second,
                   ProductRate(device, memory, DType::kBf16, kBf16Edge));
  ASSIGN_OR_RETURN(const double seconds, ShortestSeconds(device, [&] {
                     return device.Copy(memory + kCopyBytes, memory,
                                        static_cast<std::size_t>(kCopyBytes), device.compute());
                   }));
  ceilings.copy_bytes_per_second = 2.0 * static_cast<double>(kCopyBytes) / seconds;
  return ceilings;
}

}  // namespace fsdp

#include "worker/device/cpu/cpu_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "worker/device/ops.h"

namespace fsdp {
namespace {

constexpr std::int64_t kEdge = 640;  // of the square product
constexpr std::size_t kCopyBytes = std::size_t{32} << 20;
constexpr double kBudgetSeconds = 0.06;  // per ceiling, after the run that warms up
constexpr int kMaxRuns = 8;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The shortest of up to kMaxRuns runs within the budget, at least one. The run before them makes
// code and touches memory for the first time, which can take ten times as long.
template <typename F>
absl::StatusOr<double> ShortestSeconds(F run) {
  if (absl::Status status = run(); !status.ok()) return status;
  double shortest = 0;
  const double start = Now();
  for (int i = 0; i < kMaxRuns; ++i) {
    const double begin = Now();
    if (absl::Status status = run(); !status.ok()) return status;
    const double end = Now();
    shortest = i == 0 ? end - begin : std::min(shortest, end - begin);
    if (end - start > kBudgetSeconds) break;
  }
  return std::max(shortest, 1e-9);
}

absl::StatusOr<double> ProductRate(Device& device, DType dtype) {
  const auto bytes = static_cast<std::size_t>(kEdge * kEdge) * SizeOf(dtype);
  auto memory = device.AllocateHost(3 * bytes);
  if (!memory.ok()) return memory.status();
  auto* data = static_cast<std::byte*>((*memory)->data());
  const auto matrix = [&](int index) {
    return Matrix::Packed(data + static_cast<std::size_t>(index) * bytes, dtype, kEdge, kEdge);
  };
  Stream& stream = device.compute();
  const auto seconds = ShortestSeconds([&] {
    absl::Status status = device.ops().MatMul(stream, matrix(0), Transpose::kNo, matrix(1),
                                              Transpose::kYes, {}, matrix(2), false);
    status.Update(device.Synchronize(stream));
    return status;
  });
  if (!seconds.ok()) return seconds.status();
  return 2.0 * kEdge * kEdge * kEdge / *seconds;
}

// By Cast between equal types, a copy in which all threads of the device take part.
absl::StatusOr<double> CopyRate(Device& device) {
  auto memory = device.AllocateHost(2 * kCopyBytes);
  if (!memory.ok()) return memory.status();
  auto* data = static_cast<std::byte*>((*memory)->data());
  constexpr auto kSize = static_cast<std::int64_t>(kCopyBytes / sizeof(float));
  const Vector from = {data, DType::kF32, kSize};
  const Vector to = {data + kCopyBytes, DType::kF32, kSize};
  Stream& stream = device.compute();
  const auto seconds = ShortestSeconds([&] {
    absl::Status status = device.ops().Cast(stream, from, to);
    status.Update(device.Synchronize(stream));
    return status;
  });
  if (!seconds.ok()) return seconds.status();
  return 2.0 * static_cast<double>(kCopyBytes) / *seconds;
}

}  // namespace

absl::StatusOr<DeviceCeilings> MeasureCeilings(Device& device) {
  DeviceCeilings ceilings;
  const auto fp32 = ProductRate(device, DType::kF32);
  if (!fp32.ok()) return fp32.status();
  const auto bf16 = ProductRate(device, DType::kBf16);
  if (!bf16.ok()) return bf16.status();
  const auto copy = CopyRate(device);
  if (!copy.ok()) return copy.status();
  ceilings.fp32.alone = *fp32;
  ceilings.bf16.alone = *bf16;
  ceilings.copy_bytes_per_second = *copy;
  return ceilings;
}

}  // namespace fsdp

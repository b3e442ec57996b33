#include "worker/device/cuda/cuda_ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "proto/support/status.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/fp8_product.h"
#include "worker/device/ops.h"

namespace fsdp {
namespace {

constexpr std::int64_t kBf16Edge = 8192;
constexpr std::int64_t kF32Edge = 4096;
constexpr std::int64_t kCopyBytes = std::int64_t{256} << 20;  // many times an L2 cache
constexpr int kRuns = 8;
constexpr double kSustainedSeconds = 0.6;
constexpr std::size_t kFp8Workspace = std::size_t{32} << 20;

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

// The rate of runs back to back, in its second half.
absl::StatusOr<double> SustainedSeconds(Device& device, double alone,
                                        const std::function<absl::Status()>& run) {
  Stream& stream = device.compute();
  ASSIGN_OR_RETURN(const auto begin, device.CreateEvent());
  ASSIGN_OR_RETURN(const auto end, device.CreateEvent());
  const int half = std::max(1, static_cast<int>(kSustainedSeconds / 2 / alone));
  for (int i = 0; i < half; ++i) RETURN_IF_ERROR(run());
  RETURN_IF_ERROR(device.Record(*begin, stream));
  for (int i = 0; i < half; ++i) RETURN_IF_ERROR(run());
  RETURN_IF_ERROR(device.Record(*end, stream));
  RETURN_IF_ERROR(device.Synchronize(stream));
  ASSIGN_OR_RETURN(const double seconds, device.ElapsedSeconds(*begin, *end));
  return std::max(seconds / half, 1e-9);
}

// Of a product of `edge`-sized squares.
absl::StatusOr<MatMulCeiling> CeilingOf(Device& device, std::int64_t edge,
                                        const std::function<absl::Status()>& run) {
  const auto n = static_cast<double>(edge);
  ASSIGN_OR_RETURN(const double alone, ShortestSeconds(device, run));
  ASSIGN_OR_RETURN(const double sustained, SustainedSeconds(device, alone, run));
  return MatMulCeiling{2 * n * n * n / alone, 2 * n * n * n / sustained};
}

// Of every value all bits but the exponent's, which stays near 1: a matrix unit draws less power,
// and runs faster, on zeros.
struct RandomBits {
  std::uint32_t mask = 0;
  std::uint32_t one = 0;
};
constexpr RandomBits kRandomF32{0x807fffffU, 0x3f800000U};
constexpr RandomBits kRandomBf16{0x807f807fU, 0x3f803f80U};
constexpr RandomBits kRandomE4m3{0x87878787U, 0x38383838U};

absl::Status FillRandom(Device& device, std::byte* to, std::int64_t bytes, const RandomBits& bits) {
  std::vector<std::uint32_t> values(std::size_t{1} << 20);
  std::mt19937 random(1);
  for (std::uint32_t& value : values) value = (random() & bits.mask) | bits.one;
  const auto block = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
  for (std::int64_t at = 0; at < bytes; at += block) {
    RETURN_IF_ERROR(device.Copy(to + at, values.data(),
                                static_cast<std::size_t>(std::min(block, bytes - at)),
                                device.compute()));
  }
  return device.Synchronize(device.compute());
}

absl::StatusOr<MatMulCeiling> ProductCeiling(Device& device, std::byte* memory, DType dtype,
                                             std::int64_t edge) {
  const std::int64_t bytes = edge * edge * static_cast<std::int64_t>(SizeOf(dtype));
  RETURN_IF_ERROR(
      FillRandom(device, memory, 2 * bytes, dtype == DType::kBf16 ? kRandomBf16 : kRandomF32));
  const auto matrix = [&](std::int64_t index) {
    return Matrix::Packed(memory + index * bytes, dtype, edge, edge);
  };
  return CeilingOf(device, edge, [&] {
    return device.ops().MatMul(device.compute(), matrix(0), Transpose::kNo, matrix(1),
                               Transpose::kYes, {}, matrix(2), false);
  });
}

// No operation of ours computes in fp8: this is the roof that lower precision would lift to. Zeros
// where the device or the library has no such product.
absl::StatusOr<MatMulCeiling> Fp8Ceiling(Device& device, std::byte* memory) {
  constexpr std::int64_t kBytes = kBf16Edge * kBf16Edge;
  RETURN_IF_ERROR(FillRandom(device, memory, 2 * kBytes, kRandomE4m3));
  std::byte* const out = memory + 2 * kBytes;
  ASSIGN_OR_RETURN(const auto product,
                   Fp8Product::Create(kBf16Edge, {out + 2 * kBytes, kFp8Workspace}));
  if (product == nullptr) return MatMulCeiling();
  return CeilingOf(device, kBf16Edge, [&] {
    return product->Run(CudaStreamOf(device.compute()), memory, memory + kBytes, out);
  });
}

}  // namespace

absl::StatusOr<DeviceCeilings> MeasureCudaCeilings(Device& device) {
  constexpr std::int64_t kBytes =
      std::max({3 * kBf16Edge * kBf16Edge * 2, 3 * kF32Edge * kF32Edge * 4, 2 * kCopyBytes,
                4 * kBf16Edge * kBf16Edge + static_cast<std::int64_t>(kFp8Workspace)});
  ASSIGN_OR_RETURN(const auto buffer, device.Allocate(static_cast<std::size_t>(kBytes)));
  auto* memory = static_cast<std::byte*>(buffer->data());
  DeviceCeilings ceilings;
  ASSIGN_OR_RETURN(ceilings.fp32, ProductCeiling(device, memory, DType::kF32, kF32Edge));
  ASSIGN_OR_RETURN(ceilings.fp8, Fp8Ceiling(device, memory));
  ASSIGN_OR_RETURN(ceilings.bf16, ProductCeiling(device, memory, DType::kBf16, kBf16Edge));
  ASSIGN_OR_RETURN(const double seconds, ShortestSeconds(device, [&] {
                     return device.Copy(memory + kCopyBytes, memory,
                                        static_cast<std::size_t>(kCopyBytes), device.compute());
                   }));
  ceilings.copy_bytes_per_second = 2.0 * static_cast<double>(kCopyBytes) / seconds;
  return ceilings;
}

}  // namespace fsdp

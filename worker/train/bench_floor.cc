#include "worker/train/bench_floor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::array kMatMuls = {KernelFamily::kMatMulQkv, KernelFamily::kMatMulAttnOut,
                                 KernelFamily::kMatMulMlp, KernelFamily::kMatMulHead};
constexpr std::array kAttention = {KernelFamily::kAttentionForward,
                                   KernelFamily::kAttentionBackward};
// The optimizer reads and writes weight, m and v and reads the gradient.
constexpr double kOptimizerBytes = 28;

// Long enough for the clock to settle where the power limit puts it.
absl::StatusOr<double> ForASecond(Engine& engine, std::span<const KernelFamily> families) {
  ASSIGN_OR_RETURN(const double once, engine.ReplaySeconds(families, 1));
  const double repeats = std::clamp(std::ceil(1.2 / std::max(once, 1e-6)), 1.0, 10000.0);
  return engine.ReplaySeconds(families, static_cast<int>(repeats));
}

absl::StatusOr<double> CopyRate(Device& device) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;  // many times an L2 cache
  constexpr int kCopies = 20;
  ASSIGN_OR_RETURN(const auto from, device.Allocate(kBytes));
  ASSIGN_OR_RETURN(const auto to, device.Allocate(kBytes));
  ASSIGN_OR_RETURN(const auto begin, device.CreateEvent());
  ASSIGN_OR_RETURN(const auto end, device.CreateEvent());
  Stream& stream = device.compute();
  for (int i = -2; i < kCopies; ++i) {
    if (i == 0) RETURN_IF_ERROR(device.Record(*begin, stream));
    RETURN_IF_ERROR(device.Copy(to->data(), from->data(), kBytes, stream));
  }
  RETURN_IF_ERROR(device.Record(*end, stream));
  RETURN_IF_ERROR(device.Synchronize(stream));
  ASSIGN_OR_RETURN(const double seconds, device.ElapsedSeconds(*begin, *end));
  return 2.0 * kCopies * static_cast<double>(kBytes) / std::max(seconds, 1e-9);
}

bool IsElementwise(KernelFamily family) {
  const bool matmul = std::find(kMatMuls.begin(), kMatMuls.end(), family) != kMatMuls.end();
  return !matmul && !IsCommunication(family) && !IsAttention(family) &&
         family != KernelFamily::kOptimizer;
}

}  // namespace

absl::StatusOr<StepFloor> MeasureFloor(Engine& engine, Device& device, const FamilyTable& step) {
  StepFloor floor;
  ASSIGN_OR_RETURN(floor.matmul_seconds, ForASecond(engine, kMatMuls));
  ASSIGN_OR_RETURN(floor.attention_seconds, ForASecond(engine, kAttention));
  ASSIGN_OR_RETURN(floor.copy_bytes_per_second, CopyRate(device));
  floor.bytes = kOptimizerBytes * static_cast<double>(engine.plan().parameters);
  for (int i = 0; i < kNumKernelFamilies; ++i) {
    if (IsElementwise(static_cast<KernelFamily>(i))) {
      floor.bytes += step[static_cast<std::size_t>(i)].bytes;
    }
  }
  return floor;
}

}  // namespace fsdp

// How long parts of a step take alone.

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "proto/support/status.h"
#include "worker/train/engine_impl.h"

namespace fsdp {
namespace {

// A block of N(0, 1), in the dtype of activations.
std::vector<std::byte> NormalBlock(DType dtype, std::size_t elements) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::byte> block(elements * SizeOf(dtype));
  for (std::size_t i = 0; i < elements; ++i) {
    const float value = normal(random);
    if (dtype == DType::kF64) {
      const double wide = value;
      std::memcpy(block.data() + i * sizeof(wide), &wide, sizeof(wide));
    } else if (dtype == DType::kF32) {
      std::memcpy(block.data() + i * sizeof(value), &value, sizeof(value));
    } else {
      const std::uint16_t high = std::bit_cast<std::uint32_t>(value) >> 16;
      std::memcpy(block.data() + i * sizeof(high), &high, sizeof(high));
    }
  }
  return block;
}

}  // namespace

absl::Status EngineImpl::FillActivations() {
  const std::vector<std::byte> block =
      NormalBlock(plan_.input.parameter_dtype, std::size_t{1} << 22);
  std::int64_t first = plan_.arena_bytes;
  for (const PlannedBuffer& buffer : plan_.buffers) {
    if (buffer.first_tick != kAlways) first = std::min(first, buffer.offset_bytes);
  }
  auto* base = static_cast<std::byte*>(arena_memory_->data());
  const auto size = static_cast<std::int64_t>(block.size());
  for (std::int64_t at = first; at < plan_.arena_bytes; at += size) {
    const auto part = static_cast<std::size_t>(std::min(size, plan_.arena_bytes - at));
    RETURN_IF_ERROR(device_.Copy(base + at, block.data(), part, device_.compute()));
  }
  return device_.Synchronize(device_.compute());
}

absl::StatusOr<double> EngineImpl::ReplaySeconds(std::span<const KernelFamily> families,
                                                 int repeats) {
  RETURN_IF_ERROR(dead_);
  if (exchange_.sharded()) return absl::FailedPreconditionError("a replay needs world size 1");
  RETURN_IF_ERROR(Flush().status());
  ASSIGN_OR_RETURN(const auto output,
                   device_.Allocate(static_cast<std::size_t>(model_.RedirectBytes())));
  RETURN_IF_ERROR(FillActivations());
  Stream& compute = device_.compute();
  StepTimeline& timeline = evaluation_timeline_;
  timeline.Begin();
  exchange_.BeginStep(&timeline);
  recorder_.set_timer(nullptr);
  recorder_.Select(families);
  graphs_.Pause(true);
  model_.RedirectOutputs({static_cast<std::byte*>(output->data()), output->size_bytes()});
  const auto replay = [&]() -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(Event * begin, timeline.Mark(compute));
    for (int i = 0; i < repeats; ++i) {
      for (std::int64_t j = 0; j < plan_.split.num_micro_batches(); ++j) {
        RETURN_IF_ERROR(MicroBatch(j));
      }
    }
    ASSIGN_OR_RETURN(Event * end, timeline.Mark(compute));
    RETURN_IF_ERROR(device_.Synchronize(compute));
    return device_.ElapsedSeconds(*begin, *end);
  };
  const absl::StatusOr<double> seconds = replay();
  model_.RedirectOutputs({});
  graphs_.Pause(false);
  recorder_.SelectAll();
  dead_ = seconds.status();
  RETURN_IF_ERROR(dead_);
  return *seconds / repeats;
}

}  // namespace fsdp

// Offsets: buffers that live at the same tick get memory of their own, others share.

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/plan/plan_internal.h"
#include "worker/plan/plan_ticks.h"

namespace fsdp::internal {
namespace {

constexpr std::int64_t kAlignBytes = 256;

std::int64_t Align(std::int64_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

// Whether two lifetimes meet. A lifetime may run past the end of the micro-batch into the next.
bool Overlap(const PlannedBuffer& a, const PlannedBuffer& b, int total) {
  const auto meets = [](int a0, int a1, int b0, int b1) { return a0 <= b1 && b0 <= a1; };
  const int a_wrap = a.last_tick - total;
  const int b_wrap = b.last_tick - total;
  if (meets(a.first_tick, std::min(a.last_tick, total - 1), b.first_tick,
            std::min(b.last_tick, total - 1))) {
    return true;
  }
  if (a_wrap >= 0 && b_wrap >= 0) return true;
  if (a_wrap >= 0 && meets(0, a_wrap, b.first_tick, std::min(b.last_tick, total - 1))) return true;
  return b_wrap >= 0 && meets(0, b_wrap, a.first_tick, std::min(a.last_tick, total - 1));
}

bool Covers(const PlannedBuffer& buffer, int tick, int total) {
  if (buffer.first_tick == kAlways) return true;
  if (buffer.first_tick <= tick && tick <= buffer.last_tick) return true;
  return tick <= buffer.last_tick - total;
}

// First fit from `base` in the given order; returns the end of the arena.
std::int64_t FirstFit(std::vector<PlannedBuffer>& buffers, const std::vector<int>& order,
                      std::int64_t base, int total) {
  std::int64_t end = base;
  std::vector<const PlannedBuffer*> placed;       // by offset
  std::vector<const PlannedBuffer*> conflicting;  // of the current one
  for (const int id : order) {
    PlannedBuffer& buffer = buffers[static_cast<std::size_t>(id)];
    const std::int64_t size = Align(buffer.size_bytes);
    std::int64_t offset = base;
    for (const PlannedBuffer* other : placed) {
      if (!Overlap(buffer, *other, total)) continue;
      if (other->offset_bytes >= offset + size) break;
      offset = std::max(offset, other->offset_bytes + Align(other->size_bytes));
    }
    buffer.offset_bytes = offset;
    end = std::max(end, offset + size);
    const auto at = std::upper_bound(placed.begin(), placed.end(), &buffer,
                                     [](const PlannedBuffer* a, const PlannedBuffer* b) {
                                       return a->offset_bytes < b->offset_bytes;
                                     });
    placed.insert(at, &buffer);
  }
  return end;
}

std::int64_t PlaceAlways(Plan& plan) {
  std::int64_t end = 0;
  for (PlannedBuffer& buffer : plan.buffers) {
    if (buffer.first_tick != kAlways && plan.input.overlay) continue;
    buffer.offset_bytes = end;
    end += Align(buffer.size_bytes);
  }
  return end;
}

std::string Detail(const Plan& plan, MemoryKind kind) {
  const std::int64_t n = plan.shard_elements;
  const char* wide = NameOf(plan.master_dtype());
  switch (kind) {
    case MemoryKind::kMaster:
      return plan.split_master() ? absl::StrFormat("%d x 16 bits that bf16 weights lack", n)
                                 : absl::StrFormat("%d x %s", n, wide);
    case MemoryKind::kMoments:
      return absl::StrFormat("2 x %d x %s", n, wide);
    case MemoryKind::kGradients:
      return absl::StrFormat("of %d x %s, those that live at the peak%s", n, wide,
                             plan.reduced == kNoBuffer ? "" : ", and where a scatter lands");
    case MemoryKind::kComputeWeights:
      return absl::StrFormat("%d x bf16", n);
    case MemoryKind::kUnitBuffers:
      return absl::StrFormat("gathered weights in %s, gradients in %s",
                             NameOf(plan.input.parameter_dtype), NameOf(plan.gradient_dtype()));
    case MemoryKind::kActivations:
      return absl::StrFormat("%d tokens, %d blocks, at the peak", plan.micro_batch_tokens,
                             plan.input.model.num_layers);
    case MemoryKind::kLogits:
      return absl::StrFormat("chunk of %d x %d", plan.head.chunk_tokens,
                             plan.input.model.vocab_size);
    case MemoryKind::kWorkspace:
      return "scratch of kernels";
    case MemoryKind::kInputs:
      return "tokens, targets, tables, scalars";
  }
  return "";
}

}  // namespace

void PlaceBuffers(Plan& plan) {
  const int total = TickClock(plan.input.model.num_layers).total();
  const std::int64_t base = PlaceAlways(plan);
  plan.arena_bytes = base;
  if (!plan.input.overlay) return;
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(plan.buffers.size()); ++i) {
    if (plan.buffers[static_cast<std::size_t>(i)].first_tick != kAlways) order.push_back(i);
  }
  const auto at = [&plan](int id) -> const PlannedBuffer& {
    return plan.buffers[static_cast<std::size_t>(id)];
  };
  // Two orders of first fit; the better one stays.
  std::vector<int> by_life = order;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return at(a).size_bytes > at(b).size_bytes; });
  std::stable_sort(by_life.begin(), by_life.end(), [&](int a, int b) {
    return at(a).last_tick - at(a).first_tick > at(b).last_tick - at(b).first_tick;
  });
  std::vector<PlannedBuffer> other = plan.buffers;
  const std::int64_t other_end = FirstFit(other, by_life, base, total);
  plan.arena_bytes = FirstFit(plan.buffers, order, base, total);
  if (other_end >= plan.arena_bytes) return;
  plan.buffers = std::move(other);
  plan.arena_bytes = other_end;
}

void AddMemoryRows(Plan& plan) {
  const int total = TickClock(plan.input.model.num_layers).total();
  std::array<std::int64_t, kNumMemoryKinds> at_peak{};
  std::int64_t peak = -1;
  plan.peak_bytes_by_kind = {};
  for (int tick = 0; tick < total; ++tick) {
    std::array<std::int64_t, kNumMemoryKinds> now{};
    for (const PlannedBuffer& buffer : plan.buffers) {
      if (!plan.input.overlay || Covers(buffer, tick, total)) {
        now[static_cast<std::size_t>(buffer.kind)] += Align(buffer.size_bytes);
      }
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      plan.peak_bytes_by_kind[i] = std::max(plan.peak_bytes_by_kind[i], now[i]);
    }
    const std::int64_t sum = std::accumulate(now.begin(), now.end(), std::int64_t{0});
    if (sum <= peak) continue;
    peak = sum;
    at_peak = now;
  }
  plan.memory.clear();
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const std::int64_t bytes = at_peak[static_cast<std::size_t>(i)];
    if (bytes > 0) plan.memory.push_back({NameOf(kind), bytes, Detail(plan, kind)});
  }
  if (plan.arena_bytes > peak) {
    plan.memory.push_back({"gaps", plan.arena_bytes - peak, "between overlaid lifetimes"});
  }
  const std::int64_t context = *plan.input.context_bytes;
  if (context > 0) {
    plan.memory.push_back({"context and libraries", context, "the device's runtime"});
  }
  const std::int64_t nccl = *plan.input.nccl_bytes;
  if (nccl > 0) {
    plan.memory.push_back(
        {"NCCL", nccl,
         absl::StrFormat("kernels, and buffers of %d communicator%s", plan.input.num_communicators,
                         plan.input.num_communicators == 1 ? "" : "s")});
  }
  plan.total_bytes = plan.arena_bytes + context + nccl;
  plan.host_memory.clear();
  plan.snapshot_bytes = 0;
  if (!plan.input.async_checkpoint) return;
  for (const FlatArray& array : plan.snapshot_arrays()) {
    plan.snapshot_bytes += plan.shard_elements * static_cast<std::int64_t>(SizeOf(array.dtype));
  }
  plan.host_memory.push_back(
      {plan.input.device == DeviceKind::kCuda ? "pinned host memory" : "host memory",
       plan.snapshot_bytes,
       absl::StrFormat("%d x %d, a checkpoint's snapshot", plan.shard_elements,
                       plan.snapshot_bytes / plan.shard_elements)});
}

}  // namespace fsdp::internal

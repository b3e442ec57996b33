#ifndef FSDPCTL_WORKER_MODEL_ARENA_VIEW_H_
#define FSDPCTL_WORKER_MODEL_ARENA_VIEW_H_

// Planned buffers as tensors: a plan and the base address of the arena it describes. Copyable; owns
// nothing. Absent buffers (kNoBuffer) give empty views.

#include <cstddef>
#include <span>

#include "worker/device/tensor.h"
#include "worker/plan/plan.h"

namespace fsdp {

// What a full read or write of `m` moves; a double, as the profile counts traffic.
inline double BytesOf(const Matrix& m) {
  return static_cast<double>(m.rows) * static_cast<double>(m.cols) *
         static_cast<double>(SizeOf(m.dtype));
}

class ArenaView {
 public:
  ArenaView(const Plan& plan, void* base) : plan_(&plan), base_(static_cast<std::byte*>(base)) {}

  [[nodiscard]] void* Address(BufferId id) const {
    if (id == kNoBuffer) return nullptr;
    return base_ + plan_->buffers[static_cast<std::size_t>(id)].offset_bytes;
  }
  [[nodiscard]] std::span<std::byte> Bytes(BufferId id) const {
    if (id == kNoBuffer) return {};
    const auto size = plan_->buffers[static_cast<std::size_t>(id)].size_bytes;
    return {static_cast<std::byte*>(Address(id)), static_cast<std::size_t>(size)};
  }
  // [rows, cols] in the plan's activation dtype.
  [[nodiscard]] Matrix Activation(BufferId id, std::int64_t rows, std::int64_t cols) const {
    return Matrix::Packed(Address(id), plan_->input.parameter_dtype, rows, cols);
  }
  // `size` statistics starting `skip` elements into the buffer.
  [[nodiscard]] Vector Stats(BufferId id, std::int64_t size, std::int64_t skip = 0) const {
    return Elements(id, plan_->stats_dtype(), skip, size);
  }
  [[nodiscard]] Vector Elements(BufferId id, DType dtype, std::int64_t begin,
                                std::int64_t size) const {
    if (id == kNoBuffer) return {};
    return {static_cast<std::byte*>(Address(id)) + begin * static_cast<std::int64_t>(SizeOf(dtype)),
            dtype, size};
  }
  [[nodiscard]] const Plan& plan() const { return *plan_; }

 private:
  const Plan* plan_;
  std::byte* base_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_MODEL_ARENA_VIEW_H_

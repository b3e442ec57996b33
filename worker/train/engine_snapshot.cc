// The copy of weights and moments that a checkpoint is written from while training goes on.

#include "proto/support/status.h"
#include "worker/train/engine_impl.h"

namespace fsdp {
// The arrays of the arena one behind the other.
absl::Status EngineImpl::CopyForSnapshot(std::size_t unit) {
  const UnitPlan& entry = plan_.units[unit];
  auto* array = static_cast<std::byte*>(snapshot_memory_->data());
  for (const FlatArray& part : plan_.snapshot_arrays()) {
    const auto element_bytes = static_cast<std::int64_t>(SizeOf(part.dtype));
    const Vector from = Slice(part.id, part.dtype, entry);
    RETURN_IF_ERROR(device_.Copy(array + entry.shard_offset * element_bytes, from.data,
                                 static_cast<std::size_t>(from.size_bytes()), device_.copy()));
    array += plan_.shard_elements * element_bytes;
  }
  return absl::OkStatus();
}

// Where the rank's rows lie in the copy.
std::vector<ShardTensor> EngineImpl::SnapshotTensors() const {
  std::vector<ShardTensor> tensors = Tensors(/*gradients=*/false);
  std::size_t index = 0;
  for (const UnitPlan& unit : plan_.units) {
    for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
      ShardTensor& tensor = tensors[index++];
      const RowRange rows = unit.layout.RowsOf(rank_, static_cast<int>(i), unit.spec.parameters[i]);
      const std::int64_t begin = unit.shard_offset + rows.shard_offset;
      auto* array = static_cast<std::byte*>(snapshot_memory_->data());
      for (const FlatArray& part : plan_.snapshot_arrays()) {
        Vector& to = part.id == plan_.moment1     ? tensor.m
                     : part.id == plan_.moment2   ? tensor.v
                     : part.id == plan_.remainder ? tensor.remainder
                                                  : tensor.master;
        const auto element_bytes = static_cast<std::int64_t>(SizeOf(part.dtype));
        to = {array + begin * element_bytes, part.dtype,
              (rows.end - rows.begin) * tensor.row_elements()};
        array += plan_.shard_elements * element_bytes;
      }
    }
  }
  return tensors;
}

absl::StatusOr<Snapshot> EngineImpl::TakeSnapshot() {
  RETURN_IF_ERROR(dead_);
  if (snapshot_memory_ == nullptr) {
    return absl::FailedPreconditionError("the plan holds no memory for a snapshot");
  }
  if (snapshot_copied_.empty()) {
    ASSIGN_OR_RETURN(snapshot_begins_, device_.CreateEvent());
    for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
      ASSIGN_OR_RETURN(snapshot_copied_.emplace_back(), device_.CreateEvent());
    }
  }
  RETURN_IF_ERROR(device_.Record(*snapshot_begins_, device_.compute()));
  RETURN_IF_ERROR(device_.Wait(device_.copy(), *snapshot_begins_));
  snapshot_pending_ = true;
  for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
    RETURN_IF_ERROR(CopyForSnapshot(unit));
    RETURN_IF_ERROR(device_.Record(*snapshot_copied_[unit], device_.copy()));
  }
  return Snapshot{SnapshotTensors(), snapshot_copied_.back().get()};
}

absl::Status EngineImpl::WaitForSnapshot(std::size_t unit) {
  if (!snapshot_pending_) return absl::OkStatus();
  return device_.Wait(device_.compute(), *snapshot_copied_[unit]);
}

absl::Status EngineImpl::FinishSnapshot() {
  if (!snapshot_pending_) return absl::OkStatus();
  snapshot_pending_ = false;
  return device_.Synchronize(*snapshot_copied_.back());
}

}  // namespace fsdp

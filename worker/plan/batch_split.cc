#include "worker/plan/batch_split.h"

#include <algorithm>

namespace fsdp {

BatchSplit::BatchSplit(std::int64_t global_batch, int world_size, std::int64_t micro_batch)
    : global_batch_(global_batch), world_size_(world_size) {
  const std::int64_t largest = Share(0).count;
  if (micro_batch > 0) num_micro_batches_ = (largest + micro_batch - 1) / micro_batch;
  num_micro_batches_ = std::max<std::int64_t>(1, num_micro_batches_);
  max_micro_batch_ = (largest + num_micro_batches_ - 1) / num_micro_batches_;
}

SequenceRange BatchSplit::Share(int rank) const {
  const std::int64_t base = global_batch_ / world_size_;
  const std::int64_t extra = global_batch_ % world_size_;
  return {rank * base + std::min<std::int64_t>(rank, extra), base + (rank < extra ? 1 : 0)};
}

SequenceRange BatchSplit::MicroBatch(int rank, std::int64_t index) const {
  const std::int64_t share = Share(rank).count;
  const std::int64_t base = share / num_micro_batches_;
  const std::int64_t extra = share % num_micro_batches_;
  return {index * base + std::min(index, extra), base + (index < extra ? 1 : 0)};
}

}  // namespace fsdp

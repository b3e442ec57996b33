#ifndef FSDPCTL_WORKER_PLAN_BATCH_SPLIT_H_
#define FSDPCTL_WORKER_PLAN_BATCH_SPLIT_H_

// How the sequences of one global batch fall to ranks and micro-batches. Nothing needs to divide: a
// rank may get fewer sequences or none, and still takes part in every micro-batch.

#include <cstdint>

namespace fsdp {

struct SequenceRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class BatchSplit {
 public:
  // `micro_batch` sequences at most go through one forward and backward of one rank; 0: the whole
  // share.
  BatchSplit(std::int64_t global_batch, int world_size, std::int64_t micro_batch);

  // Equal on every rank.
  [[nodiscard]] std::int64_t num_micro_batches() const { return num_micro_batches_; }
  // Largest micro-batch of any rank: what buffers are planned for.
  [[nodiscard]] std::int64_t max_micro_batch() const { return max_micro_batch_; }
  // The rank's sequences of the global batch; shares differ by one at most, larger ones first.
  [[nodiscard]] SequenceRange Share(int rank) const;
  // Part `index` of the rank's share, counted from the start of the share.
  [[nodiscard]] SequenceRange MicroBatch(int rank, std::int64_t index) const;

 private:
  std::int64_t global_batch_;
  int world_size_;
  std::int64_t num_micro_batches_ = 1;
  std::int64_t max_micro_batch_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_BATCH_SPLIT_H_

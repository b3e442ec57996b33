#ifndef FSDPCTL_WORKER_DATA_PERMUTATION_H_
#define FSDPCTL_WORKER_DATA_PERMUTATION_H_

// A keyed permutation of [0, size) in O(1) memory: a Feistel network over the next even power of
// two, walked along its cycle until it lands below `size` (fewer than 4 steps on average).

#include <cstdint>

namespace fsdp {

class Permutation {
 public:
  // size >= 1.
  Permutation(std::int64_t size, std::uint64_t key);
  // Where `index` in [0, size) goes.
  [[nodiscard]] std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_;
};

// Of one pass over the data.
std::uint64_t PassKey(std::uint64_t seed, std::int64_t pass);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_PERMUTATION_H_

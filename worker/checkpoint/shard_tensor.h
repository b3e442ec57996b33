#ifndef FSDPCTL_WORKER_CHECKPOINT_SHARD_TENSOR_H_
#define FSDPCTL_WORKER_CHECKPOINT_SHARD_TENSOR_H_

// What one rank holds of one parameter: a run of its rows, with the optimizer's moments. The engine
// lists them, the checkpoint writes and fills them; neither knows the other's layout.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/device/tensor.h"

namespace fsdp {

// Moved at a time between a device and a checkpoint's file, through one host buffer.
inline constexpr std::size_t kChunkBytes = 1 << 20;

struct ShardTensor {
  std::string name;                 // as in the peers' state dicts: "layers.0.attn.in_proj_weight"
  std::vector<std::int64_t> shape;  // of the whole parameter; dim 0 are the rows
  std::int64_t row_begin = 0;       // this rank's rows; equal when it holds none
  std::int64_t row_end = 0;
  // Memory of those rows, packed: (row_end - row_begin) x product(shape[1:]) elements, fp32; on the
  // device, but for a snapshot's (Engine::TakeSnapshot).
  Vector master;
  Vector m;
  Vector v;
  // Of snapshots alone: `master` is bf16, and these u16 are what it lacks (Ops::SplitMaster).
  Vector remainder;

  [[nodiscard]] std::int64_t row_elements() const {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
    return elements;
  }
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_SHARD_TENSOR_H_

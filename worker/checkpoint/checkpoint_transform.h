#ifndef FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_TRANSFORM_H_
#define FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_TRANSFORM_H_

// What differs between two checkpoints, and the same checkpoint for another number of ranks. Both
// stream: a few MiB of memory whatever the model's size.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"

namespace fsdp {

struct PartDifference {
  std::int64_t elements = 0;
  std::int64_t different = 0;  // not the same bits
  double largest = 0;          // absolute; NaN where one side is
  double relative = 0;         // norm of the difference ÷ norm of the first
};

struct TensorDifference {
  std::string name;
  std::vector<std::int64_t> shape_a;  // empty: it has no such tensor
  std::vector<std::int64_t> shape_b;
  // Master, m and v; of tensors that both have in one shape.
  std::array<PartDifference, 3> parts;

  [[nodiscard]] bool comparable() const { return !shape_a.empty() && shape_a == shape_b; }
  [[nodiscard]] bool same() const;
};

struct CheckpointDifference {
  Manifest a, b;
  std::vector<TensorDifference> tensors;  // all of both, by name

  [[nodiscard]] bool same_tensors() const;
};

//   NOT_FOUND, DATA_LOSS  as ReadManifest and VerifyFile
absl::StatusOr<CheckpointDifference> CompareCheckpoints(BlobStore& store, const std::string& a,
                                                        const std::string& b);

// Writes `source` as `world_size` ranks would have: each holds an equal run of every tensor's rows.
// The folder inside `root` is named as the source's step and epoch; returns its path.
//   ALREADY_EXISTS  root holds that step's folder
//   as CompareCheckpoints
absl::StatusOr<std::string> ReshardCheckpoint(BlobStore& store, const std::string& source,
                                              const std::string& root, int world_size);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_TRANSFORM_H_

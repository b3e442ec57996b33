#ifndef FSDPCTL_WORKER_CHECKPOINT_WEIGHT_EXPORT_H_
#define FSDPCTL_WORKER_CHECKPOINT_WEIGHT_EXPORT_H_

// Weights as safetensors that other tools read: model.safetensors, or several files with an index,
// streamed so that only a chunk of a tensor is in memory.

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/checkpoint/weight_reader.h"

namespace fsdp {

struct ExportOptions {
  std::string dtype = "F32";  // or BF16, F16
  // A file holds at least one tensor, and no more than this otherwise.
  std::int64_t max_shard_bytes = 5'000'000'000;
};

// Writes all of `tensors` (names and shapes count) from `reader`, whose device is the CPU, into the
// folder `directory`, which exists. Every file is synced.
//   INVALID_ARGUMENT  an unknown dtype; an element that is not finite, or not in dtype's range:
//   names
//                     the tensor
absl::Status ExportWeights(BlobStore& store, WeightReader& reader,
                           std::span<const ShardTensor> tensors, const std::string& directory,
                           const ExportOptions& options);

// A small text file, synced.
absl::Status WriteTextFile(BlobStore& store, const std::string& path, const std::string& text);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_WEIGHT_EXPORT_H_

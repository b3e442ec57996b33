#ifndef FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_LOADER_H_
#define FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_LOADER_H_

// Reading a checkpoint back, on any number of ranks: each reads the rows that it holds now,
// wherever they lie.
//
// Strict: a tensor that the model has and the checkpoint has not, the reverse, another shape, a
// missing or changed file are errors that name it. Every file that a rank reads from is checked
// against its CRC-32C first, which costs one more read of it.

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/device/device.h"

namespace fsdp {

//   NOT_FOUND   there is no manifest: no checkpoint
//   DATA_LOSS   the manifest is damaged
absl::StatusOr<Manifest> ReadManifest(BlobStore& store, const std::string& directory);

struct LoadOptions {
  // False: only the master weights; m and v are left alone.
  bool optimizer_state = true;
};

// Fills master (and m, v) of `tensors`; returns the manifest.
//   INVALID_ARGUMENT  the checkpoint is of another model: names tensors and shapes
//   DATA_LOSS         a file is missing, cut or changed: names it
absl::StatusOr<Manifest> LoadCheckpoint(BlobStore& store, const std::string& directory,
                                        std::span<const ShardTensor> tensors, Device& device,
                                        const LoadOptions& options = {});

// Reads the whole file and compares size and checksum.
//   DATA_LOSS  names the file and both values
absl::Status VerifyFile(BlobStore& store, const std::string& directory, const ManifestFile& file);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_LOADER_H_

#ifndef FSDPCTL_WORKER_CHECKPOINT_WEIGHT_READER_H_
#define FSDPCTL_WORKER_CHECKPOINT_WEIGHT_READER_H_

// Weights of a model from wherever they lie, a run of rows at a time: a checkpoint, or safetensors
// as Hugging Face lays them out. A rank reads only its own rows.
//
// Thread rule: one thread's.

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/device/device.h"

namespace fsdp {

class WeightReader {
 public:
  virtual ~WeightReader() = default;

  // `path`: the folder of a checkpoint, a folder of safetensors, or one such file. Of `wanted` the
  // names and shapes count: they are all of the model's. `store` and `device` outlive the reader.
  //   INVALID_ARGUMENT  a tensor is missing, extra, misshapen, of another dtype or in two files;
  //                     names it
  //   NOT_FOUND, DATA_LOSS  the files
  static absl::StatusOr<std::unique_ptr<WeightReader>> Open(BlobStore& store,
                                                            const std::string& path,
                                                            std::span<const ShardTensor> wanted,
                                                            Device& device);

  // Fills tensor.master (f32, memory of the device) with rows [row_begin, row_end).
  //   INVALID_ARGUMENT  an element is not finite: names tensor, row and column
  //   DATA_LOSS         the file was cut or changed
  virtual absl::Status Fill(const ShardTensor& tensor) = 0;
};

// Opens and fills the master of every tensor.
absl::Status LoadWeights(BlobStore& store, const std::string& path,
                         std::span<const ShardTensor> tensors, Device& device);

// The two kinds, for Open.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenCheckpointWeights(
    BlobStore& store, const std::string& directory, std::span<const ShardTensor> wanted,
    Device& device);
absl::StatusOr<std::unique_ptr<WeightReader>> OpenHuggingFaceWeights(
    BlobStore& store, const std::string& path, std::span<const ShardTensor> wanted, Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_WEIGHT_READER_H_

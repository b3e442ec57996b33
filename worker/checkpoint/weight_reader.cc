#include "worker/checkpoint/weight_reader.h"

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/manifest.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<WeightReader>> WeightReader::Open(
    BlobStore& store, const std::string& path, std::span<const ShardTensor> wanted,
    Device& device) {
  if (store.Open(absl::StrCat(path, "/", kManifestName)).ok()) {
    return OpenCheckpointWeights(store, path, wanted, device);
  }
  return OpenHuggingFaceWeights(store, path, wanted, device);
}

absl::Status LoadWeights(BlobStore& store, const std::string& path,
                         std::span<const ShardTensor> tensors, Device& device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightReader> reader,
                   WeightReader::Open(store, path, tensors, device));
  for (const ShardTensor& tensor : tensors) RETURN_IF_ERROR(reader->Fill(tensor));
  return absl::OkStatus();
}

}  // namespace fsdp

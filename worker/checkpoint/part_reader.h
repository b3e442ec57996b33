#ifndef FSDPCTL_WORKER_CHECKPOINT_PART_READER_H_
#define FSDPCTL_WORKER_CHECKPOINT_PART_READER_H_

// A checkpoint's tensors as if each lay in one piece, whatever number of ranks wrote them.
//
// Thread rule: one thread's. Lifetime: the store outlives it.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace fsdp {

class PartReader {
 public:
  // Checks every file against its size and CRC-32C, which reads them once.
  //   NOT_FOUND   there is no checkpoint
  //   DATA_LOSS   the manifest or a file is damaged; names it
  static absl::StatusOr<std::unique_ptr<PartReader>> Open(BlobStore& store,
                                                          const std::string& directory);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  // Null when there is none of that name.
  [[nodiscard]] const ManifestTensor* Find(const std::string& name) const;
  // Fills `to` with a tensor's part (0: master, 1: m, 2: v) in f32, from `first_byte` of it on.
  //   DATA_LOSS  a file's header does not say what the manifest says
  absl::Status Read(const ManifestTensor& tensor, std::size_t part, std::uint64_t first_byte,
                    std::span<std::byte> to);

 private:
  PartReader() = default;

  std::string directory_;
  Manifest manifest_;
  std::map<std::string, const ManifestTensor*> by_name_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

// Bytes of one row, and of a whole part.
std::uint64_t RowBytes(const ManifestTensor& tensor);
std::uint64_t PartBytes(const ManifestTensor& tensor);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_PART_READER_H_

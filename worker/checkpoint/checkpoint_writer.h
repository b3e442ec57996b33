#ifndef FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_

// Saving in three operations, so that the control plane stands between the last two:
//
//   WriteShard (every rank) -> barrier -> BuildManifest (rank 0) -> [the coordinator admits it]
//   -> PublishManifest (rank 0)
//
// Until PublishManifest has returned the checkpoint does not exist; what a crash leaves behind is
// removed by the next retention run.

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/device/device.h"

namespace fsdp {

// Writes this rank's rows of all tensors (fp32 master, m and v) to
// "<directory>/rank-00002.safetensors"; durable when it returns. `directory` is created.
//   INVALID_ARGUMENT  a tensor is not f32, or its vectors do not have the size of its rows
//   errors of the store
absl::StatusOr<ManifestFile> WriteShard(BlobStore& store, const std::string& directory, int rank,
                                        std::span<const ShardTensor> tensors, Device& device);
// The same from wherever `read` gets it; of `tensors` names, shapes and rows count. `staging`: a
// piece at a time, of whole elements.
using ReadPart = std::function<absl::StatusOr<std::span<const std::byte>>(
    // `to.size()` bytes of a part (0: master, 1: m, 2: v) in f32, from `first_byte` on; in `to` or
    // where they lie.
    const ShardTensor& tensor, std::size_t part, std::size_t first_byte, std::span<std::byte> to)>;
absl::StatusOr<ManifestFile> WriteShardFrom(BlobStore& store, const std::string& directory,
                                            int rank, std::span<const ShardTensor> tensors,
                                            std::span<std::byte> staging, const ReadPart& read);
// The same from host memory, a snapshot's; on any thread.
//   CANCELLED  `cancelled` became true: nothing was published
absl::StatusOr<ManifestFile> WriteSnapshot(BlobStore& store, const std::string& directory, int rank,
                                           std::span<const ShardTensor> tensors,
                                           const std::atomic<bool>& cancelled);

// `header` with its files and tensors filled in: `files` by rank; the rows from the files' headers.
//   DATA_LOSS  a shard file is missing, has another size, or its rows do not tile a tensor
absl::StatusOr<Manifest> BuildManifest(BlobStore& store, const std::string& directory,
                                       Manifest header, const std::vector<ManifestFile>& files);

struct PublishedManifest {
  std::uint64_t size_bytes = 0;  // of the checkpoint, manifest included
  std::uint32_t crc32c = 0;      // of the manifest file
};
// The size and checksum that publishing `manifest` will give: for the proposal.
PublishedManifest DescribeManifest(const Manifest& manifest);
// Atomic, and durable when it returns.
absl::Status PublishManifest(BlobStore& store, const std::string& directory,
                             const Manifest& manifest);

// Of all names and shapes, in order.
std::uint64_t ModelHash(std::span<const ShardTensor> tensors);

// "rank-00002.safetensors".
std::string ShardFileName(int rank);

// What a shard file's metadata says under "rows/<name>": "5:10 of 16,4".
std::string DescribeRows(std::int64_t row_begin, std::int64_t row_end,
                         const std::vector<std::int64_t>& shape);

// The parts of a tensor in a shard file.
inline constexpr const char* kTensorParts[] = {"master", "m", "v"};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_

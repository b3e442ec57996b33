#include "worker/checkpoint/checkpoint_transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/part_reader.h"
#include "worker/checkpoint/weight_export.h"

namespace fsdp {
namespace {

absl::StatusOr<PartDifference> ComparePart(PartReader& a, const ManifestTensor& in_a, PartReader& b,
                                           const ManifestTensor& in_b, std::size_t part) {
  PartDifference difference;
  const std::uint64_t total = PartBytes(in_a);
  std::vector<float> values_a(kChunkBytes / sizeof(float));
  std::vector<float> values_b(values_a.size());
  double norm = 0;
  double error = 0;
  for (std::uint64_t at = 0; at < total; at += kChunkBytes) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, total - at));
    RETURN_IF_ERROR(
        a.Read(in_a, part, at, std::as_writable_bytes(std::span(values_a)).first(bytes)));
    RETURN_IF_ERROR(
        b.Read(in_b, part, at, std::as_writable_bytes(std::span(values_b)).first(bytes)));
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
      const double apart = static_cast<double>(values_b[i]) - static_cast<double>(values_a[i]);
      norm += static_cast<double>(values_a[i]) * static_cast<double>(values_a[i]);
      if (std::memcmp(&values_a[i], &values_b[i], sizeof(float)) == 0) continue;
      ++difference.different;
      error += apart * apart;
      // The first NaN stays.
      if (!std::isnan(difference.largest) && !(std::abs(apart) <= difference.largest)) {
        difference.largest = std::abs(apart);
      }
    }
  }
  difference.elements = static_cast<std::int64_t>(total / sizeof(float));
  if (difference.different > 0) difference.relative = std::sqrt(error / norm);
  return difference;
}

// What lies beside the shards: the model's description.
absl::Status CopyOthers(BlobStore& store, const std::string& source, const std::string& target,
                        const Manifest& manifest) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, store.List(source));
  for (const std::string& name : names) {
    const bool is_shard =
        std::any_of(manifest.files.begin(), manifest.files.end(),
                    [&name](const ManifestFile& file) { return file.name == name; });
    if (is_shard || name == kManifestName) continue;
    ASSIGN_OR_RETURN(const auto reader, store.Open(absl::StrCat(source, "/", name)));
    std::string text(reader->size_bytes(), '\0');
    RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(text))));
    RETURN_IF_ERROR(WriteTextFile(store, absl::StrCat(target, "/", name), text));
  }
  return absl::OkStatus();
}

// Rank's rows of a tensor: the runs tile it and differ by one row at most.
std::int64_t FirstRow(std::int64_t rows, int rank, int world_size) {
  return rows / world_size * rank + std::min<std::int64_t>(rank, rows % world_size);
}

}  // namespace

bool TensorDifference::same() const {
  return comparable() && std::all_of(parts.begin(), parts.end(), [](const PartDifference& part) {
           return part.different == 0;
         });
}

bool CheckpointDifference::same_tensors() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorDifference& tensor) { return tensor.same(); });
}

absl::StatusOr<CheckpointDifference> CompareCheckpoints(BlobStore& store, const std::string& a,
                                                        const std::string& b) {
  ASSIGN_OR_RETURN(const auto reader_a, PartReader::Open(store, a));
  ASSIGN_OR_RETURN(const auto reader_b, PartReader::Open(store, b));
  CheckpointDifference difference{reader_a->manifest(), reader_b->manifest(), {}};
  std::map<std::string, TensorDifference> tensors;
  for (const ManifestTensor& tensor : difference.a.tensors) {
    tensors[tensor.name].shape_a = tensor.shape;
  }
  for (const ManifestTensor& tensor : difference.b.tensors) {
    tensors[tensor.name].shape_b = tensor.shape;
  }
  for (auto& [name, tensor] : tensors) {
    tensor.name = name;
    if (tensor.comparable()) {
      for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
        ASSIGN_OR_RETURN(tensor.parts[part], ComparePart(*reader_a, *reader_a->Find(name),
                                                         *reader_b, *reader_b->Find(name), part));
      }
    }
    difference.tensors.push_back(tensor);
  }
  return difference;
}

absl::StatusOr<std::string> ReshardCheckpoint(BlobStore& store, const std::string& source,
                                              const std::string& root, int world_size) {
  ASSIGN_OR_RETURN(const auto reader, PartReader::Open(store, source));
  const Manifest& from = reader->manifest();
  std::string target = absl::StrCat(root, "/", StepDirectoryName(from.step, from.epoch));
  if (store.List(target).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, " exists: remove it, or give another folder"));
  }
  const ReadPart read = [&reader](
                            const ShardTensor& tensor, std::size_t part, std::size_t first_byte,
                            std::span<std::byte> to) -> absl::StatusOr<std::span<const std::byte>> {
    const ManifestTensor& whole = *reader->Find(tensor.name);
    const std::uint64_t rows_begin = static_cast<std::uint64_t>(tensor.row_begin) * RowBytes(whole);
    RETURN_IF_ERROR(reader->Read(whole, part, rows_begin + first_byte, to));
    return to;
  };
  std::vector<float> staging(kChunkBytes / sizeof(float));
  std::vector<ManifestFile> files;
  for (int rank = 0; rank < world_size; ++rank) {
    std::vector<ShardTensor> tensors;
    for (const ManifestTensor& tensor : from.tensors) {
      ShardTensor& mine = tensors.emplace_back();
      mine.name = tensor.name;
      mine.shape = tensor.shape;
      mine.row_begin = FirstRow(tensor.shape[0], rank, world_size);
      mine.row_end = FirstRow(tensor.shape[0], rank + 1, world_size);
    }
    ASSIGN_OR_RETURN(ManifestFile file,
                     WriteShardFrom(store, target, rank, tensors,
                                    std::as_writable_bytes(std::span(staging)), read));
    files.push_back(std::move(file));
  }
  RETURN_IF_ERROR(CopyOthers(store, source, target, from));
  ASSIGN_OR_RETURN(const Manifest manifest, BuildManifest(store, target, from, files));
  RETURN_IF_ERROR(PublishManifest(store, target, manifest));
  return target;
}

}  // namespace fsdp

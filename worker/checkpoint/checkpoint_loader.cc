#include "worker/checkpoint/checkpoint_loader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/tensor_shapes.h"
#include "worker/checkpoint/weight_reader.h"

namespace fsdp {
namespace {

// The open files of one load.
class ShardReader {
 public:
  ShardReader(BlobStore& store, const std::string& directory, const Manifest& manifest,
              Device& device)
      : store_(store), directory_(directory), manifest_(manifest), device_(device) {}

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(staging_, device_.AllocateHost(kChunkBytes));
    files_.resize(manifest_.files.size());
    return absl::OkStatus();
  }

  // Rows [tensor.row_begin, tensor.row_end) of one part into `to`.
  absl::Status Fill(const ManifestTensor& source, const ShardTensor& tensor, const char* part,
                    const Vector& to) {
    const std::int64_t row_bytes = tensor.row_elements() * 4;
    if (to.dtype != DType::kF32 ||
        to.size_bytes() != (tensor.row_end - tensor.row_begin) * row_bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": its %s is %d x %s, which is not its rows in f32",
                          tensor.name, part, to.size, NameOf(to.dtype)));
    }
    for (const ManifestRange& range : source.ranges) {
      const std::int64_t begin = std::max(range.row_begin, tensor.row_begin);
      const std::int64_t end = std::min(range.row_end, tensor.row_end);
      if (begin >= end) continue;
      ASSIGN_OR_RETURN(const SafetensorsFile* file, FileAt(range.file));
      ASSIGN_OR_RETURN(const SafetensorsTensor* piece,
                       PieceOf(*file, source, range, absl::StrCat(part, "/", tensor.name)));
      RETURN_IF_ERROR(
          ReadRows(*file, *piece, (begin - range.row_begin) * row_bytes, (end - begin) * row_bytes,
                   static_cast<std::byte*>(to.data) + (begin - tensor.row_begin) * row_bytes));
    }
    return absl::OkStatus();
  }

 private:
  // Verified when first used.
  absl::StatusOr<const SafetensorsFile*> FileAt(int index) {
    auto& file = files_[static_cast<std::size_t>(index)];
    if (file == nullptr) {
      const ManifestFile& entry = manifest_.files[static_cast<std::size_t>(index)];
      RETURN_IF_ERROR(VerifyFile(store_, directory_, entry));
      const std::string path = absl::StrCat(directory_, "/", entry.name);
      ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> reader, store_.Open(path));
      ASSIGN_OR_RETURN(file, SafetensorsFile::Open(std::move(reader), path));
    }
    return file.get();
  }

  // The piece of a shard file that a range of the manifest speaks of.
  static absl::StatusOr<const SafetensorsTensor*> PieceOf(const SafetensorsFile& file,
                                                          const ManifestTensor& source,
                                                          const ManifestRange& range,
                                                          const std::string& name) {
    std::vector<std::int64_t> shape = source.shape;
    shape[0] = range.row_end - range.row_begin;
    const auto rows = file.metadata().find("rows/" + source.name);
    const std::string expected = DescribeRows(range.row_begin, range.row_end, source.shape);
    if (rows == file.metadata().end() || rows->second != expected) {
      return absl::DataLossError(absl::StrFormat(
          "%s: the manifest says it holds rows %s of \"%s\"; it says %s", file.path(), expected,
          source.name, rows == file.metadata().end() ? "nothing" : rows->second));
    }
    const SafetensorsTensor* piece = file.Find(name);
    if (piece == nullptr || piece->dtype != "F32" || piece->shape != shape) {
      return absl::DataLossError(absl::StrFormat(
          "%s: the manifest says it holds \"%s\" as F32 %s; it has %s", file.path(), name,
          ShapeText(shape),
          piece == nullptr ? "none" : absl::StrCat(piece->dtype, " ", ShapeText(piece->shape))));
    }
    return piece;
  }

  absl::Status ReadRows(const SafetensorsFile& file, const SafetensorsTensor& piece,
                        std::int64_t first_byte, std::int64_t num_bytes, std::byte* to) {
    auto* staging = static_cast<std::byte*>(staging_->data());
    while (num_bytes > 0) {
      const auto count = std::min<std::int64_t>(num_bytes, kChunkBytes);
      RETURN_IF_ERROR(file.Read(piece, static_cast<std::uint64_t>(first_byte),
                                {staging, static_cast<std::size_t>(count)}));
      RETURN_IF_ERROR(device_.Copy(to, staging, static_cast<std::size_t>(count), device_.copy()));
      RETURN_IF_ERROR(device_.Synchronize(device_.copy()));
      first_byte += count;
      num_bytes -= count;
      to += count;
    }
    return absl::OkStatus();
  }

  BlobStore& store_;
  const std::string directory_;
  const Manifest& manifest_;
  Device& device_;
  std::unique_ptr<DeviceBuffer> staging_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

// The master weights of a checkpoint.
class CheckpointWeights final : public WeightReader {
 public:
  CheckpointWeights(BlobStore& store, const std::string& directory, Manifest manifest,
                    Device& device)
      : manifest_(std::move(manifest)), reader_(store, directory, manifest_, device) {
    for (const ManifestTensor& tensor : manifest_.tensors) by_name_[tensor.name] = &tensor;
  }

  absl::Status Prepare() { return reader_.Prepare(); }
  absl::Status Fill(const ShardTensor& tensor) override {
    if (tensor.row_begin == tensor.row_end) return absl::OkStatus();
    return reader_.Fill(*by_name_.at(tensor.name), tensor, "master", tensor.master);
  }

 private:
  const Manifest manifest_;
  std::map<std::string, const ManifestTensor*> by_name_;
  ShardReader reader_;
};

TensorShapes ShapesOf(const Manifest& manifest) {
  TensorShapes shapes;
  for (const ManifestTensor& tensor : manifest.tensors) shapes[tensor.name] = tensor.shape;
  return shapes;
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(BlobStore& store, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  absl::StatusOr<std::unique_ptr<BlobReader>> reader = store.Open(path);
  if (absl::IsNotFound(reader.status())) {
    if (absl::IsNotFound(store.List(directory).status())) {
      return absl::NotFoundError(absl::StrCat(directory, " does not exist"));
    }
    return absl::NotFoundError(
        absl::StrCat(directory, " is no checkpoint: it has no ", kManifestName));
  }
  RETURN_IF_ERROR(reader.status());
  if ((*reader)->size_bytes() > kMaxManifestBytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes; a manifest has at most %d", path,
                                               (*reader)->size_bytes(), kMaxManifestBytes));
  }
  std::string text((*reader)->size_bytes(), '\0');
  RETURN_IF_ERROR((*reader)->ReadAt(0, std::as_writable_bytes(std::span(text))));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  return manifest;
}

absl::Status VerifyFile(BlobStore& store, const std::string& directory, const ManifestFile& file) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  absl::StatusOr<std::unique_ptr<BlobReader>> reader = store.Open(path);
  if (!reader.ok()) {
    return absl::DataLossError(absl::StrCat("the checkpoint's file ", path,
                                            " cannot be read: ", reader.status().message()));
  }
  if ((*reader)->size_bytes() != file.size_bytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes, its manifest says %d", path,
                                               (*reader)->size_bytes(), file.size_bytes));
  }
  std::vector<std::byte> chunk(std::min<std::uint64_t>(kChunkBytes, file.size_bytes));
  std::uint32_t crc = 0;
  for (std::uint64_t offset = 0; offset < file.size_bytes;) {
    const auto count = std::min<std::uint64_t>(chunk.size(), file.size_bytes - offset);
    const std::span<std::byte> bytes = std::span(chunk).first(count);
    RETURN_IF_ERROR((*reader)->ReadAt(offset, bytes));
    crc = ExtendCrc32c(crc, bytes);
    offset += count;
  }
  if (crc != file.crc32c) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged: its CRC-32C is 0x%08x, its manifest says 0x%08x", path, crc, file.crc32c));
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> LoadCheckpoint(BlobStore& store, const std::string& directory,
                                        std::span<const ShardTensor> tensors, Device& device,
                                        const LoadOptions& options) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(store, directory));
  std::map<std::string, const ManifestTensor*> by_name;
  for (const ManifestTensor& tensor : manifest.tensors) by_name[tensor.name] = &tensor;
  RETURN_IF_ERROR(
      CompareShapes(absl::StrCat("the checkpoint ", directory), ShapesOf(manifest), tensors));
  ShardReader reader(store, directory, manifest, device);
  RETURN_IF_ERROR(reader.Prepare());
  for (const ShardTensor& tensor : tensors) {
    if (tensor.row_begin == tensor.row_end) continue;
    const ManifestTensor& source = *by_name[tensor.name];
    RETURN_IF_ERROR(reader.Fill(source, tensor, "master", tensor.master));
    if (!options.optimizer_state) continue;
    RETURN_IF_ERROR(reader.Fill(source, tensor, "m", tensor.m));
    RETURN_IF_ERROR(reader.Fill(source, tensor, "v", tensor.v));
  }
  return manifest;
}

absl::StatusOr<std::unique_ptr<WeightReader>> OpenCheckpointWeights(
    BlobStore& store, const std::string& directory, std::span<const ShardTensor> wanted,
    Device& device) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(store, directory));
  RETURN_IF_ERROR(
      CompareShapes(absl::StrCat("the checkpoint ", directory), ShapesOf(manifest), wanted));
  auto weights = std::make_unique<CheckpointWeights>(store, directory, std::move(manifest), device);
  RETURN_IF_ERROR(weights->Prepare());
  return weights;
}

}  // namespace fsdp

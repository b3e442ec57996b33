#include "worker/checkpoint/checkpoint_loader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/safetensors.h"

namespace fsdp {
namespace {

// Names of one kind that a message lists.
constexpr std::size_t kMaxNamed = 4;

std::string Shape(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

std::string Some(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamed);
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<int>(shown), ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

// Every difference between what is there and what the model wants, in one message.
absl::Status CompareShapes(const std::string& where, const Shapes& there,
                           std::span<const ShardTensor> wanted) {
  std::vector<std::string> missing;
  std::vector<std::string> misshapen;
  Shapes extra = there;
  for (const ShardTensor& tensor : wanted) {
    const auto found = there.find(tensor.name);
    extra.erase(tensor.name);
    if (found == there.end()) {
      missing.push_back(tensor.name);
    } else if (found->second != tensor.shape) {
      misshapen.push_back(absl::StrCat(tensor.name, " (", Shape(found->second), ", the model has ",
                                       Shape(tensor.shape), ")"));
    }
  }
  if (missing.empty() && misshapen.empty() && extra.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(where, " is of another model:");
  if (!missing.empty()) absl::StrAppend(&message, " missing ", Some(missing), ";");
  if (!misshapen.empty()) absl::StrAppend(&message, " misshapen ", Some(misshapen), ";");
  if (!extra.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, shape] : extra) names.push_back(name);
    absl::StrAppend(&message, " extra ", Some(names), ";");
  }
  message.pop_back();
  return absl::InvalidArgumentError(message);
}

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
          Shape(shape),
          piece == nullptr ? "none" : absl::StrCat(piece->dtype, " ", Shape(piece->shape))));
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

// All safetensors of a file or folder, and where each tensor is.
struct WeightFiles {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, std::pair<const SafetensorsFile*, const SafetensorsTensor*>> tensors;
};

absl::StatusOr<WeightFiles> OpenWeights(BlobStore& store, const std::string& path) {
  std::vector<std::string> paths;
  const absl::StatusOr<std::vector<std::string>> names = store.List(path);
  if (names.ok()) {
    for (const std::string& name : *names) {
      if (absl::EndsWith(name, ".safetensors")) paths.push_back(absl::StrCat(path, "/", name));
    }
    if (paths.empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, " holds neither ", kManifestName, " nor *.safetensors"));
    }
  } else {
    paths.push_back(path);
  }
  WeightFiles weights;
  for (const std::string& file_path : paths) {
    ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> reader, store.Open(file_path));
    ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(std::move(reader), file_path));
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto [it, is_new] = weights.tensors.try_emplace(tensor.name, file.get(), &tensor);
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" is in both ",
                                                       it->second.first->path(), " and ",
                                                       file_path));
      }
    }
    weights.files.push_back(std::move(file));
  }
  return weights;
}

absl::Status CopyToDevice(Device& device, const std::vector<float>& values, const Vector& to) {
  RETURN_IF_ERROR(
      device.Copy(to.data, values.data(), values.size() * sizeof(float), device.copy()));
  return device.Synchronize(device.copy());
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(BlobStore& store, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  absl::StatusOr<std::unique_ptr<BlobReader>> reader = store.Open(path);
  if (absl::IsNotFound(reader.status())) {
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
  Shapes there;
  std::map<std::string, const ManifestTensor*> by_name;
  for (const ManifestTensor& tensor : manifest.tensors) {
    there[tensor.name] = tensor.shape;
    by_name[tensor.name] = &tensor;
  }
  RETURN_IF_ERROR(CompareShapes(absl::StrCat("the checkpoint ", directory), there, tensors));
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

absl::Status LoadWeights(BlobStore& store, const std::string& path,
                         std::span<const ShardTensor> tensors, Device& device) {
  if (store.Open(absl::StrCat(path, "/", kManifestName)).ok()) {
    return LoadCheckpoint(store, path, tensors, device, {.optimizer_state = false}).status();
  }
  ASSIGN_OR_RETURN(const WeightFiles weights, OpenWeights(store, path));
  Shapes there;
  for (const auto& [name, place] : weights.tensors) there[name] = place.second->shape;
  RETURN_IF_ERROR(CompareShapes(path, there, tensors));
  for (const ShardTensor& tensor : tensors) {
    if (tensor.row_begin == tensor.row_end) continue;
    const auto& [file, source] = weights.tensors.at(tensor.name);
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     file->ReadFloats(*source, tensor.row_begin * tensor.row_elements(),
                                      (tensor.row_end - tensor.row_begin) * tensor.row_elements()));
    RETURN_IF_ERROR(CopyToDevice(device, values, tensor.master));
  }
  return absl::OkStatus();
}

}  // namespace fsdp

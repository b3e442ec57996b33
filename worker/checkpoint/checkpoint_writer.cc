#include "worker/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/checkpoint/safetensors.h"

namespace fsdp {
namespace {

const Vector& PartOf(const ShardTensor& tensor, std::size_t part) {
  return part == 0 ? tensor.master : part == 1 ? tensor.m : tensor.v;
}

absl::Status CheckTensor(const ShardTensor& tensor) {
  const std::int64_t elements = (tensor.row_end - tensor.row_begin) * tensor.row_elements();
  if (elements == 0) return absl::OkStatus();
  for (std::size_t part = 0; part < 3; ++part) {
    const Vector& vector = PartOf(tensor, part);
    const bool split = part == 0 && vector.dtype == DType::kBf16 &&
                       tensor.remainder.dtype == DType::kU16 && tensor.remainder.size == elements;
    if ((vector.dtype != DType::kF32 && !split) || vector.size != elements) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor \"%s\": its %s is %d x %s, rows [%d, %d) of [%s] are %d x f32", tensor.name,
          kTensorParts[part], vector.size, NameOf(vector.dtype), tensor.row_begin, tensor.row_end,
          absl::StrJoin(tensor.shape, ","), elements));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(std::span<const ShardTensor> tensors) {
  for (const ShardTensor& tensor : tensors) RETURN_IF_ERROR(CheckTensor(tensor));
  return absl::OkStatus();
}

bool ParseRows(const std::string& text, std::vector<std::int64_t>* shape, ManifestRange* range) {
  const std::pair<std::string, std::string> halves = absl::StrSplit(text, " of ");
  const std::pair<std::string, std::string> rows = absl::StrSplit(halves.first, ':');
  if (!absl::SimpleAtoi(rows.first, &range->row_begin) ||
      !absl::SimpleAtoi(rows.second, &range->row_end)) {
    return false;
  }
  for (const auto& dim : absl::StrSplit(halves.second, ',')) {
    std::int64_t value = 0;
    if (!absl::SimpleAtoi(dim, &value)) return false;
    shape->push_back(value);
  }
  return !shape->empty();
}

// f32 from bf16 and what it lacks, as Ops::JoinMaster.
void JoinMaster(const ShardTensor& tensor, std::size_t first, std::span<std::byte> to) {
  const auto* compute = static_cast<const std::uint16_t*>(tensor.master.data) + first;
  const auto* remainder = static_cast<const std::int16_t*>(tensor.remainder.data) + first;
  auto* bits = reinterpret_cast<std::uint32_t*>(to.data());
  for (std::size_t i = 0; i < to.size() / sizeof(*bits); ++i) {
    bits[i] = (static_cast<std::uint32_t>(compute[i]) << 16) +
              static_cast<std::uint32_t>(static_cast<std::int32_t>(remainder[i]));
  }
}

absl::Status WriteParts(SafetensorsWriter& writer, std::span<const ShardTensor> tensors,
                        std::span<std::byte> staging, const ReadPart& read) {
  for (std::size_t part = 0; part < 3; ++part) {
    for (const ShardTensor& tensor : tensors) {
      const auto total =
          static_cast<std::size_t>((tensor.row_end - tensor.row_begin) * tensor.row_elements()) *
          sizeof(float);
      for (std::size_t at = 0; at < total; at += staging.size()) {
        const std::span<std::byte> to = staging.first(std::min(staging.size(), total - at));
        ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, read(tensor, part, at, to));
        RETURN_IF_ERROR(writer.Append(bytes));
      }
    }
  }
  return writer.Finish();
}

// Adds the rows that one shard file holds to `tensors`.
absl::Status AddRanges(BlobStore& store, const std::string& path, int file,
                       std::map<std::string, ManifestTensor>* tensors,
                       std::vector<std::string>* order) {
  ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> reader, store.Open(path));
  ASSIGN_OR_RETURN(const auto shard, SafetensorsFile::Open(std::move(reader), path));
  for (const auto& [key, text] : shard->metadata()) {
    if (key.rfind("rows/", 0) != 0) continue;
    const std::string name = key.substr(5);
    std::vector<std::int64_t> shape;
    ManifestRange range;
    range.file = file;
    if (!ParseRows(text, &shape, &range)) {
      return absl::DataLossError(absl::StrCat(path, ": \"", key, "\" is \"", text, "\""));
    }
    const auto [it, is_new] = tensors->try_emplace(name);
    if (is_new) {
      it->second.name = name;
      it->second.shape = shape;
      order->push_back(name);
    } else if (it->second.shape != shape) {
      return absl::DataLossError(
          absl::StrCat(path, ": \"", name, "\" has another shape than in the ranks before"));
    }
    if (range.row_end > range.row_begin) it->second.ranges.push_back(range);
  }
  return absl::OkStatus();
}

}  // namespace

std::string DescribeRows(std::int64_t row_begin, std::int64_t row_end,
                         const std::vector<std::int64_t>& shape) {
  return absl::StrFormat("%d:%d of %s", row_begin, row_end, absl::StrJoin(shape, ","));
}

std::string ShardFileName(int rank) { return absl::StrFormat("rank-%05d.safetensors", rank); }

absl::StatusOr<ManifestFile> WriteShardFrom(BlobStore& store, const std::string& directory,
                                            int rank, std::span<const ShardTensor> tensors,
                                            std::span<std::byte> staging, const ReadPart& read) {
  std::vector<SafetensorsWriter::Declaration> declarations;
  SafetensorsFile::Metadata metadata = {{"format", "fsdp.shard"}, {"rank", absl::StrCat(rank)}};
  for (std::size_t part = 0; part < 3; ++part) {
    for (const ShardTensor& tensor : tensors) {
      metadata["rows/" + tensor.name] =
          DescribeRows(tensor.row_begin, tensor.row_end, tensor.shape);
      if (tensor.row_begin == tensor.row_end) continue;
      std::vector<std::int64_t> shape = tensor.shape;
      shape[0] = tensor.row_end - tensor.row_begin;
      declarations.push_back(
          {absl::StrCat(kTensorParts[part], "/", tensor.name), "F32", std::move(shape)});
    }
  }
  RETURN_IF_ERROR(store.CreateDirectory(directory));
  ManifestFile file;
  file.name = ShardFileName(rank);
  ASSIGN_OR_RETURN(std::unique_ptr<BlobWriter> blob,
                   store.Create(absl::StrCat(directory, "/", file.name)));
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                   SafetensorsWriter::Create(*blob, declarations, metadata));
  RETURN_IF_ERROR(WriteParts(*writer, tensors, staging, read));
  RETURN_IF_ERROR(blob->Sync());
  RETURN_IF_ERROR(blob->Publish());
  RETURN_IF_ERROR(store.SyncDirectory(directory));
  file.size_bytes = writer->size_bytes();
  file.crc32c = writer->crc32c();
  return file;
}

absl::StatusOr<ManifestFile> WriteShard(BlobStore& store, const std::string& directory, int rank,
                                        std::span<const ShardTensor> tensors, Device& device) {
  RETURN_IF_ERROR(CheckTensors(tensors));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBuffer> staging, device.AllocateHost(kChunkBytes));
  const auto read = [&device](
                        const ShardTensor& tensor, std::size_t part, std::size_t first,
                        std::span<std::byte> to) -> absl::StatusOr<std::span<const std::byte>> {
    const auto* from = static_cast<const std::byte*>(PartOf(tensor, part).data) + first;
    RETURN_IF_ERROR(device.Copy(to.data(), from, to.size(), device.copy()));
    RETURN_IF_ERROR(device.Synchronize(device.copy()));
    return to;
  };
  return WriteShardFrom(store, directory, rank, tensors,
                        {static_cast<std::byte*>(staging->data()), kChunkBytes}, read);
}

absl::StatusOr<ManifestFile> WriteSnapshot(BlobStore& store, const std::string& directory, int rank,
                                           std::span<const ShardTensor> tensors,
                                           const std::atomic<bool>& cancelled) {
  RETURN_IF_ERROR(CheckTensors(tensors));
  std::vector<float> staging(kChunkBytes / sizeof(float));
  const auto read = [&cancelled](
                        const ShardTensor& tensor, std::size_t part, std::size_t first,
                        std::span<std::byte> to) -> absl::StatusOr<std::span<const std::byte>> {
    if (cancelled.load()) return absl::CancelledError("the save was given up");
    const Vector& vector = PartOf(tensor, part);
    if (vector.dtype == DType::kF32) {
      return std::span(static_cast<const std::byte*>(vector.data) + first, to.size());
    }
    JoinMaster(tensor, first / sizeof(float), to);
    return to;
  };
  return WriteShardFrom(store, directory, rank, tensors, std::as_writable_bytes(std::span(staging)),
                        read);
}

absl::StatusOr<Manifest> BuildManifest(BlobStore& store, const std::string& directory,
                                       Manifest header, const std::vector<ManifestFile>& files) {
  header.files = files;
  header.world_size = static_cast<int>(files.size());
  header.tensors.clear();
  std::map<std::string, ManifestTensor> tensors;
  std::vector<std::string> order;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = absl::StrCat(directory, "/", files[i].name);
    RETURN_IF_ERROR(AddRanges(store, path, static_cast<int>(i), &tensors, &order));
  }
  for (const std::string& name : order) {
    ManifestTensor& tensor = tensors[name];
    // Ranks need not hold rows in rank order.
    std::sort(tensor.ranges.begin(), tensor.ranges.end(),
              [](const auto& a, const auto& b) { return a.row_begin < b.row_begin; });
    header.tensors.push_back(std::move(tensor));
  }
  // The reader's checks are the writer's too: nothing is published that could not be loaded.
  absl::StatusOr<Manifest> checked = ParseManifest(SerializeManifest(header));
  if (!checked.ok()) return Annotate(checked.status(), directory);
  return header;
}

PublishedManifest DescribeManifest(const Manifest& manifest) {
  const std::string text = SerializeManifest(manifest);
  return {manifest.size_bytes() + text.size(), Crc32c(std::as_bytes(std::span(text)))};
}

absl::Status PublishManifest(BlobStore& store, const std::string& directory,
                             const Manifest& manifest) {
  const std::string text = SerializeManifest(manifest);
  ASSIGN_OR_RETURN(std::unique_ptr<BlobWriter> blob,
                   store.Create(absl::StrCat(directory, "/", kManifestName)));
  RETURN_IF_ERROR(blob->Append(std::as_bytes(std::span(text))));
  RETURN_IF_ERROR(blob->Sync());
  // The step's folder itself must survive before the name inside it means anything.
  RETURN_IF_ERROR(store.SyncDirectory(directory.substr(0, directory.rfind('/'))));
  RETURN_IF_ERROR(blob->Publish());
  return store.SyncDirectory(directory);
}

std::uint64_t ModelHash(std::span<const ShardTensor> tensors) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  const auto add = [&hash](absl::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  };
  for (const ShardTensor& tensor : tensors) {
    add(absl::StrCat(tensor.name, "[", absl::StrJoin(tensor.shape, ","), "]\n"));
  }
  return hash;
}

}  // namespace fsdp

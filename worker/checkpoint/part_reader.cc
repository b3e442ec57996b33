#include "worker/checkpoint/part_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace fsdp {

std::uint64_t RowBytes(const ManifestTensor& tensor) {
  std::uint64_t bytes = sizeof(float);
  for (std::size_t i = 1; i < tensor.shape.size(); ++i) {
    bytes *= static_cast<std::uint64_t>(tensor.shape[i]);
  }
  return bytes;
}

std::uint64_t PartBytes(const ManifestTensor& tensor) {
  return static_cast<std::uint64_t>(tensor.shape[0]) * RowBytes(tensor);
}

absl::StatusOr<std::unique_ptr<PartReader>> PartReader::Open(BlobStore& store,
                                                             const std::string& directory) {
  std::unique_ptr<PartReader> reader(new PartReader);
  reader->directory_ = directory;
  ASSIGN_OR_RETURN(reader->manifest_, ReadManifest(store, directory));
  for (const ManifestTensor& tensor : reader->manifest_.tensors) {
    reader->by_name_[tensor.name] = &tensor;
  }
  for (const ManifestFile& file : reader->manifest_.files) {
    RETURN_IF_ERROR(VerifyFile(store, directory, file));
    const std::string path = absl::StrCat(directory, "/", file.name);
    ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> blob, store.Open(path));
    ASSIGN_OR_RETURN(reader->files_.emplace_back(), SafetensorsFile::Open(std::move(blob), path));
  }
  return reader;
}

const ManifestTensor* PartReader::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

absl::Status PartReader::Read(const ManifestTensor& tensor, std::size_t part,
                              std::uint64_t first_byte, std::span<std::byte> to) {
  const std::uint64_t row_bytes = RowBytes(tensor);
  const std::uint64_t last_byte = first_byte + to.size();
  for (const ManifestRange& range : tensor.ranges) {
    const std::uint64_t range_begin = static_cast<std::uint64_t>(range.row_begin) * row_bytes;
    const std::uint64_t begin = std::max(first_byte, range_begin);
    const std::uint64_t end =
        std::min(last_byte, static_cast<std::uint64_t>(range.row_end) * row_bytes);
    if (begin >= end) continue;
    const SafetensorsFile& file = *files_[static_cast<std::size_t>(range.file)];
    const std::string name = absl::StrCat(kTensorParts[part], "/", tensor.name);
    const SafetensorsTensor* piece = file.Find(name);
    const auto rows = static_cast<std::uint64_t>(range.row_end - range.row_begin);
    if (piece == nullptr || piece->dtype != "F32" || piece->size_bytes() != rows * row_bytes) {
      return absl::DataLossError(absl::StrFormat(
          "%s: the manifest says it holds rows %s of \"%s\" in F32; its header "
          "says otherwise",
          file.path(), DescribeRows(range.row_begin, range.row_end, tensor.shape), name));
    }
    RETURN_IF_ERROR(
        file.Read(*piece, begin - range_begin, to.subspan(begin - first_byte, end - begin)));
  }
  return absl::OkStatus();
}

}  // namespace fsdp

#include "worker/checkpoint/weight_export.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/checkpoint/safetensors.h"

namespace fsdp {
namespace {

// Both round to nearest even; what is too large becomes infinite.
std::uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const float magnitude = std::abs(value);
  if (magnitude >= 65520.0F) return sign | 0x7C00U;
  // Subnormal halves count units of 2^-24; the product is exact.
  if (magnitude < 0x1p-14F) {
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24F));
  }
  const std::uint32_t rounded = (bits & 0x7FFFFFFFU) + 0xFFF + ((bits >> 13) & 1);
  return sign | static_cast<std::uint16_t>((rounded >> 13) - (112U << 10));
}

bool IsInfinite(std::uint16_t value, bool bf16) {
  const std::uint16_t infinity = bf16 ? 0x7F80 : 0x7C00;
  return (value & infinity) == infinity;
}

class Exporter {
 public:
  Exporter(BlobStore& store, WeightReader& reader, const std::string& directory,
           const ExportOptions& options)
      : store_(store), reader_(reader), directory_(directory), options_(options) {}

  absl::Status Run(std::span<const ShardTensor> tensors) {
    if (options_.dtype != "F32" && options_.dtype != "BF16" && options_.dtype != "F16") {
      return absl::InvalidArgumentError(
          absl::StrCat("dtype ", options_.dtype, " is none of F32, BF16, F16"));
    }
    const std::vector<std::vector<const ShardTensor*>> shards = Split(tensors);
    nlohmann::json weight_map = nlohmann::json::object();
    std::int64_t total = 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          shards.size() == 1
              ? "model.safetensors"
              : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
      RETURN_IF_ERROR(WriteShardFile(name, shards[i]));
      for (const ShardTensor* tensor : shards[i]) {
        weight_map[tensor->name] = name;
        total += BytesOf(*tensor);
      }
    }
    if (shards.size() == 1) return absl::OkStatus();
    const nlohmann::json index = {{"metadata", {{"total_size", total}}},
                                  {"weight_map", weight_map}};
    return WriteTextFile(store_, absl::StrCat(directory_, "/model.safetensors.index.json"),
                         index.dump(2) + "\n");
  }

 private:
  static std::int64_t ElementsOf(const ShardTensor& tensor) {
    return tensor.shape[0] * tensor.row_elements();
  }
  [[nodiscard]] std::int64_t BytesOf(const ShardTensor& tensor) const {
    return ElementsOf(tensor) * static_cast<std::int64_t>(SafetensorsDTypeSize(options_.dtype));
  }

  [[nodiscard]] std::vector<std::vector<const ShardTensor*>> Split(
      std::span<const ShardTensor> tensors) const {
    std::vector<std::vector<const ShardTensor*>> shards(1);
    std::int64_t bytes = 0;
    for (const ShardTensor& tensor : tensors) {
      if (!shards.back().empty() && bytes + BytesOf(tensor) > options_.max_shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back(&tensor);
      bytes += BytesOf(tensor);
    }
    return shards;
  }

  absl::Status WriteShardFile(const std::string& name,
                              const std::vector<const ShardTensor*>& tensors) {
    ASSIGN_OR_RETURN(const auto blob, store_.Create(absl::StrCat(directory_, "/", name)));
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const ShardTensor* tensor : tensors) {
      declarations.push_back({tensor->name, options_.dtype, tensor->shape});
    }
    ASSIGN_OR_RETURN(const auto writer,
                     SafetensorsWriter::Create(*blob, declarations, {{"format", "pt"}}));
    for (const ShardTensor* tensor : tensors) RETURN_IF_ERROR(AppendTensor(*writer, *tensor));
    RETURN_IF_ERROR(writer->Finish());
    RETURN_IF_ERROR(blob->Sync());
    return blob->Publish();
  }

  // Whole rows at a time, about a chunk of them.
  absl::Status AppendTensor(SafetensorsWriter& writer, const ShardTensor& tensor) {
    const std::int64_t row = std::max<std::int64_t>(1, tensor.row_elements());
    const std::int64_t rows =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(kChunkBytes / sizeof(float)) / row);
    ShardTensor part = tensor;
    for (std::int64_t begin = 0; begin < tensor.shape[0]; begin += rows) {
      part.row_begin = begin;
      part.row_end = std::min(begin + rows, tensor.shape[0]);
      values_.resize(static_cast<std::size_t>((part.row_end - begin) * row));
      part.master = {values_.data(), DType::kF32, static_cast<std::int64_t>(values_.size())};
      RETURN_IF_ERROR(reader_.Fill(part));
      RETURN_IF_ERROR(AppendValues(writer, part));
    }
    return absl::OkStatus();
  }

  absl::Status AppendValues(SafetensorsWriter& writer, const ShardTensor& part) {
    const bool bf16 = options_.dtype == "BF16";
    narrow_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const float value = values_[i];
      const std::uint16_t narrow = bf16 ? FloatToBf16(value) : FloatToHalf(value);
      const bool wide = options_.dtype == "F32";
      if (!std::isfinite(value) || (!wide && IsInfinite(narrow, bf16))) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "tensor \"%s\" has %g in row %d, which %s does not hold", part.name, value,
            part.row_begin + static_cast<std::int64_t>(i) / part.row_elements(), options_.dtype));
      }
      narrow_.push_back(narrow);
    }
    if (options_.dtype == "F32") return writer.Append(std::as_bytes(std::span(values_)));
    return writer.Append(std::as_bytes(std::span(narrow_)));
  }

  BlobStore& store_;
  WeightReader& reader_;
  const std::string directory_;
  const ExportOptions options_;
  std::vector<float> values_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace

absl::Status ExportWeights(BlobStore& store, WeightReader& reader,
                           std::span<const ShardTensor> tensors, const std::string& directory,
                           const ExportOptions& options) {
  return Exporter(store, reader, directory, options).Run(tensors);
}

absl::Status WriteTextFile(BlobStore& store, const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto blob, store.Create(path));
  RETURN_IF_ERROR(blob->Append(std::as_bytes(std::span(text))));
  RETURN_IF_ERROR(blob->Sync());
  return blob->Publish();
}

}  // namespace fsdp

#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

constexpr char kMetadataKey[] = "__metadata__";
constexpr int kMaxNesting = 3;

// The number of elements, or nothing when it does not fit.
bool Multiply(const std::vector<std::int64_t>& shape, std::int64_t* product) {
  *product = 1;
  // A zero anywhere makes the product 0, but the others must still be sane.
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(*product, dim, product)) return false;
  }
  return true;
}

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t bits = exponent == 31 ? (sign | 0x7F800000U | (mantissa << 13))
                                            : (sign | ((exponent + 112) << 23) | (mantissa << 13));
  return std::bit_cast<float>(bits);
}

absl::Status ParseTensor(const nlohmann::json& entry, SafetensorsTensor* tensor) {
  if (!entry.is_object()) return absl::DataLossError("its entry is not an object");
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::DataLossError(absl::StrCat("it has an unknown key \"", key, "\""));
    }
  }
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return absl::DataLossError("it has no dtype");
  if (shape == entry.end() || !shape->is_array()) return absl::DataLossError("it has no shape");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return absl::DataLossError("its data_offsets are not two non-negative integers");
  }
  tensor->dtype = dtype->get<std::string>();
  for (const nlohmann::json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > INT64_MAX) {
      return absl::DataLossError(absl::StrCat("its shape has ", dim.dump()));
    }
    tensor->shape.push_back(dim.get<std::int64_t>());
  }
  tensor->begin = (*offsets)[0].get<std::uint64_t>();
  tensor->end = (*offsets)[1].get<std::uint64_t>();
  return absl::OkStatus();
}

// Shape, dtype and byte range agree and lie inside the data.
absl::Status CheckTensor(const SafetensorsTensor& tensor, std::uint64_t data_bytes) {
  const std::size_t element_bytes = SafetensorsDTypeSize(tensor.dtype);
  if (element_bytes == 0) {
    return absl::DataLossError(absl::StrCat("its dtype \"", tensor.dtype, "\" is unknown"));
  }
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  if (!Multiply(tensor.shape, &elements) ||
      __builtin_mul_overflow(elements, static_cast<std::int64_t>(element_bytes), &bytes)) {
    return absl::DataLossError(
        absl::StrCat("its shape [", absl::StrJoin(tensor.shape, ","), "] is too large"));
  }
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return absl::DataLossError(absl::StrFormat("its bytes [%d, %d) do not lie in the data's %d",
                                               tensor.begin, tensor.end, data_bytes));
  }
  if (tensor.size_bytes() != static_cast<std::uint64_t>(bytes)) {
    return absl::DataLossError(absl::StrFormat(
        "its shape [%s] of %s takes %d bytes, its data_offsets hold %d",
        absl::StrJoin(tensor.shape, ","), tensor.dtype, bytes, tensor.size_bytes()));
  }
  return absl::OkStatus();
}

absl::Status WrongDType(const SafetensorsTensor& tensor, const char* wanted) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" is ", tensor.dtype,
                                                 "; ", wanted, " was expected"));
}

template <typename From, typename To>
void ConvertAll(const std::vector<std::byte>& bytes, std::vector<To>* to) {
  to->resize(bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < to->size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): an I8 tensor holds numbers, no characters.
    (*to)[i] = static_cast<To>(value);
  }
}

template <typename To>
absl::Status ConvertFloating(const SafetensorsTensor& tensor, const std::vector<std::byte>& bytes,
                             std::vector<To>* to) {
  if (tensor.dtype == "F64") {
    ConvertAll<double>(bytes, to);
  } else if (tensor.dtype == "F32") {
    ConvertAll<float>(bytes, to);
  } else if (tensor.dtype == "BF16" || tensor.dtype == "F16") {
    std::vector<std::uint16_t> raw;
    ConvertAll<std::uint16_t>(bytes, &raw);
    const bool bf16 = tensor.dtype == "BF16";
    to->resize(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      (*to)[i] = bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(raw[i]) << 16)
                      : HalfToFloat(raw[i]);
    }
  } else {
    return WrongDType(tensor, "F64, F32, F16 or BF16");
  }
  return absl::OkStatus();
}

}  // namespace

std::size_t SafetensorsDTypeSize(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" ||
      dtype == "F8_E5M2") {
    return 1;
  }
  return 0;
}

std::int64_t SafetensorsTensor::num_elements() const {
  return static_cast<std::int64_t>(size_bytes() / SafetensorsDTypeSize(dtype));
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> reader, BlobStore::Posix().Open(path));
  return Open(std::move(reader), path);
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    std::unique_ptr<BlobReader> reader, const std::string& path) {
  const std::uint64_t size = reader->size_bytes();
  if (size < 8) {
    return absl::DataLossError(
        absl::StrFormat("%s: %d bytes are too few for a safetensors file", path, size));
  }
  std::uint64_t header_bytes = 0;
  RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kMaxHeaderBytes || header_bytes > size - 8) {
    return absl::DataLossError(absl::StrFormat(
        "%s: the header length %d exceeds %s", path, header_bytes,
        header_bytes > kMaxHeaderBytes ? absl::StrCat("the limit of ", kMaxHeaderBytes)
                                       : absl::StrCat("the file's remaining ", size - 8)));
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(reader->ReadAt(8, std::as_writable_bytes(std::span(header))));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  file->reader_ = std::move(reader);
  file->data_begin_ = 8 + header_bytes;
  if (absl::Status status = file->ParseHeader(header, size - file->data_begin_); !status.ok()) {
    return Annotate(status, path);
  }
  return file;
}

absl::Status SafetensorsFile::ParseHeader(std::string_view header, std::uint64_t data_bytes) {
  if (header.empty() || header.front() != '{') {
    return absl::DataLossError("the header does not start with '{'");
  }
  absl::StatusOr<nlohmann::json> json = ParseStrictJson(header, kMaxNesting);
  if (!json.ok()) return Annotate(json.status(), "the header");
  for (const auto& [name, entry] : json->items()) {
    if (name == kMetadataKey) {
      if (!entry.is_object()) return absl::DataLossError("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
          return absl::DataLossError(absl::StrCat("__metadata__.", key, " is not a string"));
        }
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    SafetensorsTensor tensor;
    tensor.name = name;
    absl::Status status = ParseTensor(entry, &tensor);
    if (status.ok()) status = CheckTensor(tensor, data_bytes);
    if (!status.ok()) return Annotate(status, absl::StrCat("tensor \"", name, "\""));
    tensors_.push_back(std::move(tensor));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const SafetensorsTensor& tensor = tensors_[i];
    if (tensor.begin != covered) {
      return absl::DataLossError(absl::StrFormat(
          "tensor \"%s\" begins at byte %d, the one before it ends at %d: they %s", tensor.name,
          tensor.begin, covered, tensor.begin < covered ? "overlap" : "leave a hole"));
    }
    covered = tensor.end;
    index_[tensor.name] = i;
  }
  if (covered != data_bytes) {
    return absl::DataLossError(absl::StrFormat(
        "the tensors take %d bytes, the file holds %d (cut or appended to)", covered, data_bytes));
  }
  return absl::OkStatus();
}

const SafetensorsTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<const SafetensorsTensor*> SafetensorsFile::Get(const std::string& name) const {
  const SafetensorsTensor* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(path_, " has no tensor \"", name, "\""));
  }
  return tensor;
}

absl::Status SafetensorsFile::Read(const SafetensorsTensor& tensor, std::uint64_t first_byte,
                                   std::span<std::byte> bytes) const {
  if (first_byte > tensor.size_bytes() || bytes.size() > tensor.size_bytes() - first_byte) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bytes [%d, +%d) do not lie in tensor \"%s\" of %d bytes (%s)", first_byte,
                        bytes.size(), tensor.name, tensor.size_bytes(), path_));
  }
  return reader_->ReadAt(data_begin_ + tensor.begin + first_byte, bytes);
}

absl::StatusOr<std::vector<float>> SafetensorsFile::ReadFloats(
    const SafetensorsTensor& tensor) const {
  return ReadFloats(tensor, 0, tensor.num_elements());
}

absl::StatusOr<std::vector<float>> SafetensorsFile::ReadFloats(const SafetensorsTensor& tensor,
                                                               std::int64_t first,
                                                               std::int64_t count) const {
  if (first < 0 || count < 0 || count > tensor.num_elements() - first) {
    return absl::InvalidArgumentError(
        absl::StrFormat("elements [%d, +%d) do not lie in tensor \"%s\" of %d (%s)", first, count,
                        tensor.name, tensor.num_elements(), path_));
  }
  const std::uint64_t element_bytes = SafetensorsDTypeSize(tensor.dtype);
  std::vector<std::byte> bytes(static_cast<std::uint64_t>(count) * element_bytes);
  RETURN_IF_ERROR(Read(tensor, static_cast<std::uint64_t>(first) * element_bytes, bytes));
  std::vector<float> values;
  RETURN_IF_ERROR(ConvertFloating(tensor, bytes, &values));
  return values;
}

absl::StatusOr<std::vector<double>> SafetensorsFile::ReadDoubles(
    const SafetensorsTensor& tensor) const {
  std::vector<std::byte> bytes(tensor.size_bytes());
  RETURN_IF_ERROR(Read(tensor, 0, bytes));
  std::vector<double> values;
  RETURN_IF_ERROR(ConvertFloating(tensor, bytes, &values));
  return values;
}

absl::StatusOr<std::vector<std::int64_t>> SafetensorsFile::ReadIntegers(
    const SafetensorsTensor& tensor) const {
  std::vector<std::byte> bytes(tensor.size_bytes());
  RETURN_IF_ERROR(Read(tensor, 0, bytes));
  std::vector<std::int64_t> values;
  const std::string& dtype = tensor.dtype;
  if (dtype == "I64") {
    ConvertAll<std::int64_t>(bytes, &values);
  } else if (dtype == "I32") {
    ConvertAll<std::int32_t>(bytes, &values);
  } else if (dtype == "I16") {
    ConvertAll<std::int16_t>(bytes, &values);
  } else if (dtype == "I8") {
    ConvertAll<std::int8_t>(bytes, &values);
  } else if (dtype == "U32") {
    ConvertAll<std::uint32_t>(bytes, &values);
  } else if (dtype == "U16") {
    ConvertAll<std::uint16_t>(bytes, &values);
  } else if (dtype == "U8" || dtype == "BOOL") {
    ConvertAll<std::uint8_t>(bytes, &values);
  } else {
    return WrongDType(tensor, "an integer type of at most 64 bits with sign");
  }
  return values;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    BlobWriter& sink, const std::vector<Declaration>& declarations,
    const SafetensorsFile::Metadata& metadata) {
  // Insertion order keeps the header in the order of the bytes.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::set<std::string> names;
  std::uint64_t offset = 0;
  for (const Declaration& tensor : declarations) {
    std::int64_t elements = 0;
    const std::size_t element_bytes = SafetensorsDTypeSize(tensor.dtype);
    if (element_bytes == 0 || !Multiply(tensor.shape, &elements) || tensor.name == kMetadataKey ||
        !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("cannot write tensor \"%s\" of dtype %s and shape [%s]: name taken, or "
                          "dtype or shape not representable",
                          tensor.name, tensor.dtype, absl::StrJoin(tensor.shape, ",")));
    }
    const std::uint64_t end = offset + static_cast<std::uint64_t>(elements) * element_bytes;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // Spaces to a multiple of 8 keep every tensor aligned when the file is mapped.
  while (text.size() % 8 != 0) text.push_back(' ');
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(sink));
  const std::uint64_t header_bytes = text.size();
  RETURN_IF_ERROR(writer->Put(std::as_bytes(std::span(&header_bytes, 1))));
  RETURN_IF_ERROR(writer->Put(std::as_bytes(std::span(text))));
  writer->expected_bytes_ = 8 + header_bytes + offset;
  return writer;
}

absl::Status SafetensorsWriter::Put(std::span<const std::byte> bytes) {
  size_bytes_ += bytes.size();
  crc32c_ = ExtendCrc32c(crc32c_, bytes);
  return sink_.Append(bytes);
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > expected_bytes_ - size_bytes_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d bytes more than the declared tensors", bytes.size() - (expected_bytes_ - size_bytes_)));
  }
  return Put(bytes);
}

absl::Status SafetensorsWriter::Finish() {
  if (size_bytes_ != expected_bytes_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%d of the declared bytes were not written", expected_bytes_ - size_bytes_));
  }
  return absl::OkStatus();
}

}  // namespace fsdp

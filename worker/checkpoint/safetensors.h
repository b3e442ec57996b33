#ifndef FSDPCTL_WORKER_CHECKPOINT_SAFETENSORS_H_
#define FSDPCTL_WORKER_CHECKPOINT_SAFETENSORS_H_

// The safetensors file format: 8 bytes little-endian header length, a JSON header {name: {dtype,
// shape, data_offsets}, "__metadata__": {string: string}}, then the tensors' bytes.
//
// The reader is strict. It refuses, naming file, tensor and values: a header longer than the file
// or than kMaxHeaderBytes, JSON that is broken or has duplicate keys, unknown dtypes, shapes whose
// size overflows or differs from the byte range, and tensors that overlap or leave holes. Nothing
// of a tensor is read before it is asked for, and no byte is trusted: any input gives a value or an
// error.
//
// Thread rule: SafetensorsFile is immutable after Open and thread-safe; the writer is one thread's.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"

namespace fsdp {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data section
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t size_bytes() const { return end - begin; }
  [[nodiscard]] std::int64_t num_elements() const;
};

// Bytes of an element of `dtype`; 0 for an unknown one.
std::size_t SafetensorsDTypeSize(const std::string& dtype);

class SafetensorsFile {
 public:
  using Metadata = std::map<std::string, std::string>;

  //   NOT_FOUND, PERMISSION_DENIED  the file cannot be opened
  //   DATA_LOSS                     it is not a whole, well-formed safetensors file
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  // `path` is for messages.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(std::unique_ptr<BlobReader> reader,
                                                               const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  // The header's "__metadata__"; empty when it has none.
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  // In the order of their bytes.
  [[nodiscard]] const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  // Null when there is none of that name.
  [[nodiscard]] const SafetensorsTensor* Find(const std::string& name) const;
  //   NOT_FOUND  names file and tensor
  [[nodiscard]] absl::StatusOr<const SafetensorsTensor*> Get(const std::string& name) const;

  // Fills `bytes` from byte `first_byte` of the tensor.
  //   INVALID_ARGUMENT  the range does not lie inside the tensor
  //   DATA_LOSS         the file was cut since Open
  absl::Status Read(const SafetensorsTensor& tensor, std::uint64_t first_byte,
                    std::span<std::byte> bytes) const;
  // All elements, converted. F64, F32, F16, BF16.
  //   INVALID_ARGUMENT  the tensor has another dtype
  absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsTensor& tensor) const;
  // Elements [first, first + count) of them.
  absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsTensor& tensor, std::int64_t first,
                                                std::int64_t count) const;
  // F64 keeps its digits.
  absl::StatusOr<std::vector<double>> ReadDoubles(const SafetensorsTensor& tensor) const;
  // I64, I32, I16, I8, U32, U16, U8, BOOL.
  absl::StatusOr<std::vector<std::int64_t>> ReadIntegers(const SafetensorsTensor& tensor) const;

 private:
  SafetensorsFile() = default;
  absl::Status ParseHeader(std::string_view header, std::uint64_t data_bytes);

  std::string path_;
  std::unique_ptr<BlobReader> reader_;
  std::uint64_t data_begin_ = 0;
  Metadata metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t> index_;
};

// Streams one file: all names and shapes first, then the bytes in that order.
class SafetensorsWriter {
 public:
  struct Declaration {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
  };

  // Writes the header. `sink` outlives the writer; Sync and Publish are the caller's.
  //   INVALID_ARGUMENT  a name twice, an unknown dtype, a negative dimension
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      BlobWriter& sink, const std::vector<Declaration>& declarations,
      const SafetensorsFile::Metadata& metadata);

  // The next bytes; tensors may be split over calls.
  //   INVALID_ARGUMENT  more than was declared
  absl::Status Append(std::span<const std::byte> bytes);
  //   FAILED_PRECONDITION  fewer bytes than declared
  absl::Status Finish();

  // Of header and all bytes so far.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::uint32_t crc32c() const { return crc32c_; }

 private:
  explicit SafetensorsWriter(BlobWriter& sink) : sink_(sink) {}
  absl::Status Put(std::span<const std::byte> bytes);

  BlobWriter& sink_;
  std::uint64_t expected_bytes_ = 0;
  std::uint64_t size_bytes_ = 0;
  std::uint32_t crc32c_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_SAFETENSORS_H_

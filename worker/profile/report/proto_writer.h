#ifndef FSDPCTL_WORKER_PROFILE_REPORT_PROTO_WRITER_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_PROTO_WRITER_H_

// Fields of protobuf's wire format, appended to a string: for messages of formats that are not
// ours. Not thread-safe.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::report {

class ProtoWriter {
 public:
  // Negative values as two's complement in 64 bits, as int32, int64 and enums have them.
  ProtoWriter& Varint(std::uint32_t field, std::int64_t value) {
    Tag(field, 0);
    Raw(static_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoWriter& Fixed64(std::uint32_t field, std::uint64_t value) {
    Tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xff);
    return *this;
  }
  ProtoWriter& Double(std::uint32_t field, double value) {
    return Fixed64(field, std::bit_cast<std::uint64_t>(value));
  }
  // Strings, bytes and messages.
  ProtoWriter& Bytes(std::uint32_t field, std::string_view value) {
    Tag(field, 2);
    Raw(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoWriter& Message(std::uint32_t field, const ProtoWriter& message) {
    return Bytes(field, message.bytes_);
  }
  // The fields of another piece of the same message.
  ProtoWriter& Append(const ProtoWriter& more) {
    bytes_ += more.bytes_;
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void Tag(std::uint32_t field, std::uint32_t wire_type) { Raw(field << 3 | wire_type); }
  void Raw(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_PROTO_WRITER_H_

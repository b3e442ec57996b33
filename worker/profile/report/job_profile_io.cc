#include "worker/profile/report/job_profile_io.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/profile/report/report_files.h"

namespace fsdp {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The tag of field 1000, fixed32, and its four bytes.
constexpr std::string_view kChecksumTag = "\xc5\x3e";
constexpr std::size_t kTrailerBytes = kChecksumTag.size() + 4;
// A message of two bytes takes a hundred in memory: more parts than recordings of kMaxProfileBytes
// have are refused before they are unpacked.
constexpr std::int64_t kMaxParts = 20'000'000;

std::uint32_t ChecksumOf(std::string_view bytes) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::string Trailer(std::uint32_t checksum) {
  std::string trailer(kChecksumTag);
  for (int shift = 0; shift < 32; shift += 8) {
    trailer += static_cast<char>(checksum >> shift & 0xff);
  }
  return trailer;
}

// Fields of a profile and of its recordings; more than kMaxParts are not counted. -1: not protobuf.
std::int64_t CountParts(std::string_view bytes, bool is_recording) {
  const int ranks_field = v1::JobProfile::kRanksFieldNumber;
  CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  std::int64_t parts = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    ++parts;
    const bool has_parts =
        !is_recording && WireFormatLite::GetTagFieldNumber(tag) == ranks_field &&
        WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (has_parts) {
      std::uint32_t length = 0;
      if (!input.ReadVarint32(&length)) return -1;
      const auto at = static_cast<std::size_t>(input.CurrentPosition());
      if (length > bytes.size() - at) return -1;
      const std::int64_t inner = CountParts(bytes.substr(at, length), true);
      if (inner < 0 || !input.Skip(static_cast<int>(length))) return -1;
      parts += inner;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return -1;
    }
    if (parts > kMaxParts) break;
  }
  return parts;
}

}  // namespace

std::string EncodeJobProfile(const v1::JobProfile& profile) {
  std::string bytes = profile.SerializeAsString();
  return bytes + Trailer(ChecksumOf(bytes));
}

absl::StatusOr<v1::JobProfile> DecodeJobProfile(std::string_view bytes) {
  if (bytes.size() < kTrailerBytes ||
      bytes.substr(bytes.size() - kTrailerBytes, kChecksumTag.size()) != kChecksumTag) {
    return absl::DataLossError("cut off, or not a profile: it does not end with a checksum");
  }
  const std::string_view message = bytes.substr(0, bytes.size() - kTrailerBytes);
  if (bytes.substr(message.size()) != Trailer(ChecksumOf(message))) {
    return absl::DataLossError("changed since it was written: its checksum is another");
  }
  const std::int64_t parts = CountParts(message, /*is_recording=*/false);
  if (parts > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxParts, " parts"));
  }
  v1::JobProfile profile;
  if (parts < 0 || !profile.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return absl::DataLossError("not a profile: protobuf cannot read it");
  }
  RETURN_IF_ERROR(ValidateProfile(profile));
  return profile;
}

absl::StatusOr<v1::JobProfile> ReadJobProfile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, report::ReadWholeFile(path, kMaxProfileBytes));
  absl::StatusOr<v1::JobProfile> profile = DecodeJobProfile(bytes);
  if (!profile.ok()) return Annotate(profile.status(), path);
  return profile;
}

absl::Status WriteJobProfile(const v1::JobProfile& profile, const std::string& path) {
  return report::ReplaceFile(path, EncodeJobProfile(profile));
}

}  // namespace fsdp

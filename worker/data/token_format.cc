#include "worker/data/token_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/token_file.h"

namespace fsdp {
namespace {

constexpr std::string_view kMegatronIndexMagic = "MMIDIDX";
constexpr TokenFileKind kHeadedFormats[] = {kTokenFile16, kTokenFile32};

// What a header begins with.
struct Header {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  std::int32_t num_tokens = 0;
};

absl::StatusOr<TokenLayout> CheckHeader(const ByteStream::File& file, const TokenFileKind& format,
                                        const Header& header) {
  if (file.size_bytes < kTokenFileHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s begins with llm.c's magic %d but has %d bytes, fewer than its header's %d: it was cut; "
        "make it again",
        file.path, header.magic, file.size_bytes, kTokenFileHeaderBytes));
  }
  if (header.version != format.version) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s begins with llm.c's magic %d and version %d; version %d is read: write it again in "
        "that, or without a header",
        file.path, header.magic, header.version, format.version));
  }
  const std::int64_t ids_bytes = file.size_bytes - kTokenFileHeaderBytes;
  if (header.num_tokens < 0 || ids_bytes != std::int64_t{header.num_tokens} * format.token_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: its header says %d tokens of %d bytes, and %d bytes follow it: it was cut or damaged; "
        "make it again",
        file.path, header.num_tokens, format.token_bytes, ids_bytes));
  }
  return TokenLayout{kTokenFileHeaderBytes, format.token_bytes};
}

}  // namespace

absl::StatusOr<TokenLayout> ReadTokenLayout(const ByteStream& stream, const ByteStream::File& file,
                                            int raw_token_bytes) {
  std::array<std::byte, sizeof(Header)> begin{};
  const auto count = static_cast<std::size_t>(
      std::min<std::int64_t>(file.size_bytes, static_cast<std::int64_t>(begin.size())));
  RETURN_IF_ERROR(stream.ReadAt(file.begin, std::span(begin).first(count)));
  if (count >= kMegatronIndexMagic.size() &&
      std::memcmp(begin.data(), kMegatronIndexMagic.data(), kMegatronIndexMagic.size()) == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is a Megatron index, which holds no tokens: it is found beside its .bin by the ending "
        ".idx; rename it",
        file.path));
  }
  Header header;
  std::memcpy(&header, begin.data(), sizeof(header));
  for (const TokenFileKind& format : kHeadedFormats) {
    if (count >= sizeof(header.magic) && header.magic == format.magic) {
      return CheckHeader(file, format, header);
    }
  }
  return TokenLayout{0, raw_token_bytes};
}

}  // namespace fsdp

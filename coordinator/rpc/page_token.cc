#include "coordinator/rpc/page_token.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {
namespace {

std::string FilterHash(const std::string& filter) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : filter) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace

std::string EncodePageToken(std::int64_t cursor, const std::string& filter) {
  return absl::WebSafeBase64Escape(absl::StrCat("1:", cursor, ":", FilterHash(filter)));
}

absl::StatusOr<std::int64_t> DecodePageToken(const std::string& token, const std::string& filter) {
  if (token.empty()) return 0;
  std::string text;
  const absl::Status bad =
      BadField("page_token", token, "is not a token that this service gave out");
  if (!absl::WebSafeBase64Unescape(token, &text)) return bad;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  std::int64_t cursor = 0;
  if (parts.size() != 3 || parts[0] != "1" || !absl::SimpleAtoi(parts[1], &cursor) || cursor <= 0) {
    return bad;
  }
  if (parts[2] != FilterHash(filter)) {
    return BadField("page_token", token,
                    "belongs to a call with other filters: repeat them unchanged");
  }
  return cursor;
}

absl::StatusOr<std::int64_t> PageSize(std::int32_t requested, std::int64_t standard,
                                      std::int64_t largest) {
  if (requested < 0) {
    return BadField("page_size", absl::StrCat(requested), absl::StrCat(requested, " is negative"));
  }
  if (requested == 0) return standard;
  return std::min<std::int64_t>(requested, largest);
}

}  // namespace fsdp::coordinator

#include "worker/tokenize/normalizer.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "worker/tokenize/utf8.h"

namespace fsdp {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Characters that form C keeps as they are and that join no character before them. Not complete:
// what is missing here takes the slow way. A test compares with utf8proc.
constexpr Range kStable[] = {
    {0x0000, 0x02FF},   {0x0388, 0x03FF},   {0x0400, 0x0482},   {0x048A, 0x0590}, {0x05D0, 0x05EA},
    {0x061B, 0x064A},   {0x0660, 0x066F},   {0x0671, 0x06D5},   {0x0904, 0x0928}, {0x0E01, 0x0E30},
    {0x1E00, 0x1EFF},   {0x2002, 0x20CF},   {0x2190, 0x2328},   {0x232B, 0x2ADB}, {0x2ADD, 0x2BFF},
    {0x3000, 0x3029},   {0x3030, 0x3098},   {0x309B, 0x30FF},   {0x3105, 0x312F}, {0x3200, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},   {0xFE30, 0xFEFE},   {0xFF00, 0xFFEF}, {0xFFFD, 0xFFFD},
    {0x1F000, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x2A6DF},
};

bool IsStable(char32_t code) {
  for (const Range& range : kStable) {
    if (code <= range.last) return code >= range.first;
  }
  return false;
}

}  // namespace

bool IsSurelyNfc(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    // All below U+0300, in two bytes from C2 to CB, is stable.
    if (static_cast<std::uint8_t>(text[at]) < 0xCC) {
      ++at;
      continue;
    }
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (!next.valid || !IsStable(next.code)) return false;
    at += next.size;
  }
  return true;
}

absl::StatusOr<std::string> ToNfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to normalize a document of ", text.size(), " bytes"));
  }
  if (size < 0) {
    return absl::InternalError(absl::StrCat("utf8proc_map: ", utf8proc_errmsg(size)));
  }
  return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

}  // namespace fsdp

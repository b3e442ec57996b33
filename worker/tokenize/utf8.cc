#include "worker/tokenize/utf8.h"

#include <cstring>

namespace fsdp {
namespace {

std::uint8_t ByteAt(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

// What the first byte allows: how many bytes follow, and the range of the first of them, which
// keeps out overlong forms, surrogates and what lies above U+10FFFF.
struct Lead {
  std::size_t num_following = 0;
  std::uint8_t least = 0x80;
  std::uint8_t most = 0xBF;
};

Lead LeadOf(std::uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

std::size_t AsciiPrefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  while (at < text.size() && ByteAt(text, at) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text) {
  const std::uint8_t first = ByteAt(text, 0);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = LeadOf(first);
  if (lead.num_following == 0) return {0, 1, false};
  char32_t code = first & (0x3FU >> lead.num_following);
  for (std::size_t i = 1; i <= lead.num_following; ++i) {
    if (i >= text.size()) return {0, i, false};
    const std::uint8_t byte = ByteAt(text, i);
    const bool fits = i == 1 ? byte >= lead.least && byte <= lead.most : (byte & 0xC0U) == 0x80U;
    if (!fits) return {0, i, false};
    code = code << 6U | (byte & 0x3FU);
  }
  return {code, lead.num_following + 1, true};
}

std::size_t ValidUtf8Prefix(std::string_view text) {
  std::size_t at = 0;
  while ((at += AsciiPrefix(text.substr(at))) < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (!next.valid) return at;
    at += next.size;
  }
  return at;
}

std::int64_t AppendReplacingInvalid(std::string_view text, std::string* out) {
  std::int64_t num_replaced = 0;
  while (!text.empty()) {
    const std::size_t valid = ValidUtf8Prefix(text);
    out->append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out->append("\xEF\xBF\xBD");
    ++num_replaced;
    text.remove_prefix(DecodeUtf8(text).size);
  }
  return num_replaced;
}

void AppendUtf8(char32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int num_following = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const auto lead = static_cast<char32_t>(num_following == 1   ? 0xC0
                                          : num_following == 2 ? 0xE0
                                                               : 0xF0);
  out->push_back(static_cast<char>(lead | code >> (6 * num_following)));
  for (int i = num_following - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80U | (code >> (6 * i) & 0x3FU)));
  }
}

}  // namespace fsdp

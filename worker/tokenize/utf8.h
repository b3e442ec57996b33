#ifndef FSDPCTL_WORKER_TOKENIZE_UTF8_H_
#define FSDPCTL_WORKER_TOKENIZE_UTF8_H_

// UTF-8 as tokenizers need it. Thread-safe (no state).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp {

struct Utf8Char {
  char32_t code = 0;
  // Bytes of the character; of an invalid sequence those that are replaced together.
  std::size_t size = 0;
  bool valid = false;
};

// The character that `text` (not empty) begins with. An invalid sequence is cut as Unicode advises
// (its longest prefix that could have become a character, else one byte), which is what the
// decoders of Python, Rust and the browsers replace by one U+FFFD.
Utf8Char DecodeUtf8(std::string_view text);

// Bytes of the longest valid prefix.
std::size_t ValidUtf8Prefix(std::string_view text);

// Appends `text` with each invalid sequence replaced by U+FFFD; how many there were.
std::int64_t AppendReplacingInvalid(std::string_view text, std::string* out);

void AppendUtf8(char32_t code, std::string* out);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_UTF8_H_

#ifndef FSDPCTL_WORKER_TOKENIZE_BYTE_ALPHABET_H_
#define FSDPCTL_WORKER_TOKENIZE_BYTE_ALPHABET_H_

// How byte-level vocabularies spell bytes: printable Latin-1 stands for itself, the other 68 bytes
// for U+0100 and on, in order (a space is "Ġ"). Thread-safe (no state).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp {

// "Ġthe" -> " the"; absent when a character spells no byte, as in special tokens.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

std::string SpellingOfByte(std::uint8_t byte);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_BYTE_ALPHABET_H_

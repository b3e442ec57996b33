#include "worker/tokenize/byte_alphabet.h"

#include <array>

#include "worker/tokenize/utf8.h"

namespace fsdp {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr char32_t kNumCodes = kFirstSubstitute + 68;

struct Alphabet {
  std::array<char32_t, 256> code_of_byte{};
  std::array<int, kNumCodes> byte_of_code{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int& byte : alphabet.byte_of_code) byte = -1;
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const char32_t code = printable ? static_cast<char32_t>(byte) : substitute++;
    alphabet.code_of_byte[static_cast<std::size_t>(byte)] = code;
    alphabet.byte_of_code[code] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Char next = DecodeUtf8(spelling);
    if (!next.valid || next.code >= kNumCodes || kAlphabet.byte_of_code[next.code] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte_of_code[next.code]));
    spelling.remove_prefix(next.size);
  }
  return bytes;
}

std::string SpellingOfByte(std::uint8_t byte) {
  std::string spelling;
  AppendUtf8(kAlphabet.code_of_byte[byte], &spelling);
  return spelling;
}

}  // namespace fsdp

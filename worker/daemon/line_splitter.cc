#include "worker/daemon/line_splitter.h"

#include <utility>

namespace fsdp::daemon {
namespace {

bool IsContinuationByte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Bytes of the valid sequence that starts at `at`; 0: none does.
std::size_t SequenceLength(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!IsContinuationByte(text[at + i])) return 0;
  }
  const auto second = static_cast<unsigned char>(text[at + 1]);
  // Overlong forms, surrogates, and code points above U+10FFFF.
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

// The longest prefix of at most `limit` bytes that cuts no code point.
std::size_t CutBefore(std::string_view text, std::size_t limit) {
  std::size_t cut = limit;
  while (cut > 0 && limit - cut < 3 && IsContinuationByte(text[cut])) --cut;
  return cut == 0 || IsContinuationByte(text[cut]) ? limit : cut;
}

}  // namespace

std::string ToValidUtf8(std::string text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = SequenceLength(text, at);
    if (length == 0) text[at] = '?';
    at += length == 0 ? 1 : length;
  }
  return text;
}

void LineSplitter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    line_.append(bytes.substr(0, newline));
    EmitFullPieces();
    if (newline == std::string_view::npos) return;
    sink_(ToValidUtf8(std::exchange(line_, {})), /*continued=*/false);
    bytes.remove_prefix(newline + 1);
  }
}

void LineSplitter::EmitFullPieces() {
  while (line_.size() > max_bytes_) {
    const std::size_t cut = CutBefore(line_, max_bytes_);
    sink_(ToValidUtf8(line_.substr(0, cut)), /*continued=*/true);
    line_.erase(0, cut);
  }
}

void LineSplitter::Finish() {
  if (!line_.empty()) sink_(ToValidUtf8(std::exchange(line_, {})), /*continued=*/false);
}

}  // namespace fsdp::daemon

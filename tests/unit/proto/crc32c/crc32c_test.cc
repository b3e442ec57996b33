#include "proto/support/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(Crc32cTest, MatchesKnownAnswers) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(digits))), 0xE3069283U);
  const std::string zeros(32, '\0');  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(zeros))), 0x8A9136AAU);
  EXPECT_EQ(ExtendCrc32c(Crc32c(std::as_bytes(std::span(digits)).first(4)),
                         std::as_bytes(std::span(digits)).subspan(4)),
            0xE3069283U);
}

// One bit at a time, as the polynomial defines it.
std::uint32_t BitByBit(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

TEST(Crc32cTest, AllLengthsAndStartsAgreeWithTheDefinition) {
  std::string text;
  for (int i = 0; i < 64; ++i) text.push_back(static_cast<char>(i * 37 + 11));
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; begin + size <= bytes.size(); ++size) {
      const auto part = bytes.subspan(begin, size);
      ASSERT_EQ(Crc32c(part), BitByBit(part)) << begin << " " << size;
    }
  }
}

}  // namespace
}  // namespace fsdp

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <set>
#include <string>
#include <vector>

#include "worker/tokenize/byte_alphabet.h"
#include "worker/tokenize/normalizer.h"
#include "worker/tokenize/pattern.h"
#include "worker/tokenize/pre_tokenizer.h"
#include "worker/tokenize/utf8.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::pair<std::string, std::int64_t> Repaired(std::string_view text) {
  std::string out;
  const std::int64_t count = AppendReplacingInvalid(text, &out);
  return {out, count};
}

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Utf8Test, ValidTextStays) {
  for (const std::string text : {"", "plain", "é中😀", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << text;
    EXPECT_EQ(Repaired(text), std::pair(text, std::int64_t{0}));
  }
}

// The counts are those of Python's bytes.decode(errors="replace").
TEST(Utf8Test, EachInvalidSequenceIsOneReplacement) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"\xFF", 1},     {"\xC3", 1},         {"\xE2\x82", 1},     {"\xF0\x9F\x98", 1},
      {"\xC0\xAF", 2}, {"\xED\xA0\x80", 3}, {"\xF4\x90\x80", 3}, {"\xF8\x88\x80\x80\x80", 5},
      {"\x80\x81", 2}, {"\xE0\x80\xAF", 3}};
  for (const auto& [bytes, count] : cases) {
    std::string expected = "a";
    for (int i = 0; i < count; ++i) expected += kReplacement;
    EXPECT_EQ(Repaired("a" + bytes + "b"), std::pair(expected + "b", std::int64_t{count}));
  }
}

TEST(Utf8Test, InvalidBytesBehindALongAsciiRunAreFound) {
  const std::string text = std::string(100, 'x') + "\xFF" + std::string(100, 'y');
  EXPECT_EQ(ValidUtf8Prefix(text), 100u);
}

TEST(ByteAlphabetTest, SpellsEachByteAndBack) {
  std::set<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = SpellingOfByte(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(BytesOfSpelling(spelling), std::string(1, static_cast<char>(byte)));
    spellings.insert(spelling);
  }
  EXPECT_EQ(spellings.size(), 256u);
  EXPECT_EQ(BytesOfSpelling("Ġthe"), " the");
  EXPECT_EQ(BytesOfSpelling("Ċ"), "\n");
  EXPECT_EQ(BytesOfSpelling("▁the"), std::nullopt);
}

TEST(NormalizerTest, ComposesAsUnicodeSays) {
  EXPECT_EQ(*ToNfc("e\xCC\x81"), "é");
  EXPECT_EQ(*ToNfc("\xE2\x84\xAB"), "Å");  // the sign for angstrom
  EXPECT_FALSE(IsSurelyNfc("e\xCC\x81"));
  EXPECT_TRUE(IsSurelyNfc("naïve 中文 😀 Привет"));
}

// What is taken for stable must neither change nor join what comes before it.
TEST(NormalizerTest, StableCharactersAreStable) {
  std::set<utf8proc_int32_t> joins_left;
  for (utf8proc_int32_t code = 0; code < 0x110000; ++code) {
    utf8proc_int32_t parts[8];
    int last_class = 0;
    const auto count = utf8proc_decompose_char(code, parts, 8, UTF8PROC_DECOMPOSE, &last_class);
    for (utf8proc_ssize_t i = 1; i < count; ++i) joins_left.insert(parts[i]);
  }
  int num_stable = 0;
  for (char32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, &text);
    if (!IsSurelyNfc(text)) continue;
    ++num_stable;
    const auto signed_code = static_cast<utf8proc_int32_t>(code);
    EXPECT_EQ(*ToNfc(text), text) << std::hex << signed_code;
    EXPECT_EQ(utf8proc_get_property(signed_code)->combining_class, 0) << std::hex << signed_code;
    EXPECT_FALSE(joins_left.contains(signed_code)) << std::hex << signed_code;
  }
  EXPECT_GT(num_stable, 80000);
}

TEST(PatternTest, SpellsWhatDiffers) {
  EXPECT_EQ(*PatternForPcre2(R"(\s+(?!\S))"), R"(\p{White_Space}+(?!\P{White_Space}))");
  EXPECT_EQ(*PatternForPcre2(R"([^\s\p{L}]?\p{Han}{1,3})"),
            R"([^\p{White_Space}\p{L}]?\p{sc:Han}{1,3})");
  EXPECT_EQ(QuotedPattern("a.b(c)"), R"(a\.b\(c\))");
}

TEST(PatternTest, RefusesWhatWouldMeanSomethingElse) {
  for (const char* pattern :
       {R"(\w+)", R"(\h)", R"(\b)", R"(^a)", R"([a&&b])", R"([[:alpha:]])", R"(a{,3})", R"(a{2}+)",
        R"((?<name>a))", R"((?x:a))", R"(\pL)", R"(\p{^L})", R"(\R)", R"(\1)", R"([]a])"}) {
    const auto translated = PatternForPcre2(pattern);
    EXPECT_EQ(translated.status().code(), absl::StatusCode::kUnimplemented) << pattern;
    EXPECT_THAT(std::string(translated.status().message()), HasSubstr(pattern));
  }
  EXPECT_EQ(PatternForPcre2("a[b").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PatternForPcre2("a\\").status().code(), absl::StatusCode::kInvalidArgument);
}

std::vector<std::string> Pieces(const std::vector<PreTokenizer::Rule>& rules,
                                std::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(rules);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  Cutter cutter(*pre_tokenizer);
  std::vector<std::string> pieces;
  const absl::Status status =
      cutter.Cut(text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(PreTokenizerTest, Gpt2Pattern) {
  const std::vector<PreTokenizer::Rule> rules = {{kGpt2Pattern, true}};
  EXPECT_THAT(Pieces(rules, "I'm  here, it's 42!\n\n x"),
              ElementsAre("I", "'m", " ", " here", ",", " it", "'s", " 42", "!", "\n\n", " x"));
  EXPECT_THAT(Pieces(rules, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(Pieces(rules, ""), ElementsAre());
}

// U+180E was a space until Unicode 6.3 and is one for PCRE2's \s; U+0085 is one for Unicode.
TEST(PreTokenizerTest, SpacesAreUnicodeWhiteSpace) {
  const std::vector<PreTokenizer::Rule> rules = {{R"(\s+)", true}};
  EXPECT_THAT(Pieces(rules,
                     "a\xE1\xA0\x8E"
                     "b"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b"));
  EXPECT_THAT(Pieces(rules,
                     "a\xC2\x85"
                     "b"),
              ElementsAre("a", "\xC2\x85", "b"));
  EXPECT_THAT(Pieces(rules,
                     "a\xEF\xBB\xBF"
                     "b"),
              ElementsAre("a\xEF\xBB\xBF"
                          "b"));
}

TEST(PreTokenizerTest, RulesCutThePiecesOfTheOneBefore) {
  EXPECT_THAT(Pieces({{R"(\p{N})", true}, {"b", true}}, "ab12b"),
              ElementsAre("a", "b", "1", "2", "b"));
  // A look ahead ends with its piece.
  EXPECT_THAT(Pieces({{"X", true}, {R"(a(?!X))", true}}, "aXab"), ElementsAre("a", "X", "a", "b"));
}

TEST(PreTokenizerTest, DropsWhatIsNotMatched) {
  EXPECT_THAT(Pieces({{R"(\p{L}+)", false}}, "ab, cd!"), ElementsAre("ab", "cd"));
}

TEST(PreTokenizerTest, EmptyMatchesCut) {
  EXPECT_THAT(Pieces({{R"((?=\p{Lu}))", true}}, "aéBcD"), ElementsAre("aé", "Bc", "D"));
}

TEST(PreTokenizerTest, LongRunsNeedNoLongStack) {
  const std::string spaces(1 << 20, ' ');
  EXPECT_THAT(Pieces({{kGpt2Pattern, true}}, spaces + "x"), ElementsAre(spaces.substr(1), " x"));
}

TEST(PreTokenizerTest, BrokenPatternIsNamed) {
  const auto made = PreTokenizer::Create({{"(a", true}});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("(a"));
}

// In front of a newline behind a letter there is a cut, and what is on one side does not depend on
// the other: what cuts_before_newlines() promises.
TEST(PreTokenizerTest, KnownPatternsCutBeforeNewlines) {
  const auto pre_tokenizer = PreTokenizer::Create({{kGpt2Pattern, true}});
  EXPECT_TRUE((*pre_tokenizer)->cuts_before_newlines());
  EXPECT_FALSE((*PreTokenizer::Create({{R"(\p{L}+\n)", true}}))->cuts_before_newlines());
  for (const char* left : {"a", "  it's a", ".A", "1 b\n\n  c", "'s"}) {
    for (const char* right : {"\n", "\n\nx", "\n  x", "\n.y", "\n's", "\n\t "}) {
      std::vector<std::string> expected = Pieces({{kGpt2Pattern, true}}, left);
      for (const auto& piece : Pieces({{kGpt2Pattern, true}}, right)) expected.push_back(piece);
      EXPECT_EQ(Pieces({{kGpt2Pattern, true}}, std::string(left) + right), expected);
    }
  }
}

}  // namespace
}  // namespace fsdp

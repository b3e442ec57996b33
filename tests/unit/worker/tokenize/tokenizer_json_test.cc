#include "worker/tokenize/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/unit/worker/tokenize/small_tokenizer.h"

namespace fsdp {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Tokenizer> Load(const json& file, const std::string& config = "",
                                      const TokenizerOptions& options = {}) {
  auto tokenizer = ParseTokenizerJson(file.dump(), config, options);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text,
                            bool starts_document = true) {
  std::vector<TokenId> ids;
  const absl::Status status = tokenizer.NewEncoder()->Encode(text, starts_document, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

const std::vector<std::string> kMerges = {"t h", "th e", "Ġ the", "a a", "aa a", "i n"};
enum : TokenId { kTh = 256, kThe, kSpaceThe, kAa, kAaa, kIn };

TEST(TokenizerJsonTest, MergesByRankLeftmostFirst) {
  const auto tokenizer = Load(SmallTokenizer(kMerges));
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  EXPECT_THAT(Encode(*tokenizer, "the the thin"), ElementsAre(kThe, kSpaceThe, ' ', kTh, kIn));
  EXPECT_THAT(Encode(*tokenizer, "aaaaa"), ElementsAre(kAa, kAaa));
  EXPECT_THAT(Encode(*tokenizer, "aaa"), ElementsAre(kAaa));
  EXPECT_THAT(Encode(*tokenizer, "é\n"), ElementsAre(0xC3, 0xA9, '\n'));
  EXPECT_THAT(Encode(*tokenizer, ""), ElementsAre());
}

TEST(TokenizerJsonTest, MergesAsPairs) {
  json file = SmallTokenizer(kMerges);
  file["model"]["merges"] = json::array();
  for (const std::string& merge : kMerges) {
    const auto space = merge.find(' ');
    file["model"]["merges"].push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  EXPECT_THAT(Encode(*Load(file), " the"), ElementsAre(kSpaceThe));
}

// What merging means, without any haste.
std::vector<TokenId> SlowBpe(const std::string& piece, const std::vector<std::string>& merges) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best_rank = merges.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] != parts[i] + " " + parts[i + 1]) continue;
        best_rank = rank;
        at = i;
      }
    }
    if (best_rank == merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts) {
    TokenId id = static_cast<std::uint8_t>(part[0]);
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      std::string merged = merges[rank];
      merged.erase(merged.find(' '), 1);
      if (merged == part) id = static_cast<TokenId>(256 + rank);
    }
    ids.push_back(id);
  }
  return ids;
}

TEST(TokenizerJsonTest, ShortLongAndCachedPiecesAreMergedAlike) {
  const std::vector<std::string> merges = {"a b", "b a",   "ab a", "a a",   "ba ba",
                                           "c c", "aba c", "cc a", "aa aa", "cca ab"};
  const auto tokenizer = Load(SmallTokenizer(merges));
  const auto encoder = tokenizer->NewEncoder();
  std::mt19937 random(7);
  for (const std::size_t size : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 700}) {
    for (int repeat = 0; repeat < 40; ++repeat) {
      std::string piece;
      for (std::size_t i = 0; i < size; ++i) piece += "abc"[random() % 3];
      const std::vector<TokenId> expected = SlowBpe(piece, merges);
      for (int again = 0; again < 2; ++again) {
        std::vector<TokenId> ids;
        ASSERT_TRUE(encoder->Encode(piece, true, &ids).ok());
        EXPECT_EQ(ids, expected) << piece;
      }
    }
  }
}

TEST(TokenizerJsonTest, IgnoreMergesTakesWholePieces) {
  json file = SmallTokenizer({"a b"});
  file["model"]["vocab"]["xyz"] = 257;
  EXPECT_THAT(Encode(*Load(file), "xyz"), ElementsAre('x', 'y', 'z'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(Encode(*Load(file), "xyz ab xyzx"),
              ElementsAre(257, ' ', 256, ' ', 'x', 'y', 'z', 'x'));
}

TEST(TokenizerJsonTest, AddedTokensAreTakenOutLongestFirst) {
  const auto tokenizer = Load(SmallTokenizer({}, {"<|end|>", "<|end|>>", "€"}));
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->Find("<|end|>"), TokenId{256});
  EXPECT_THAT(Encode(*tokenizer, "a<|end|>b<|end|>>€<|end"),
              ElementsAre('a', 256, 'b', 257, 258, '<', '|', 'e', 'n', 'd'));
  TokenizerOptions as_text;
  as_text.parse_special_tokens = false;
  EXPECT_THAT(Encode(*Load(SmallTokenizer({}, {"<e>"}), "", as_text), "<e>"),
              ElementsAre('<', 'e', '>'));
}

TEST(TokenizerJsonTest, NormalizesButNotSpecialTokens) {
  json file = SmallTokenizer({}, {"e\xCC\x81", "o\xCC\x81"});
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"][1]["normalized"] = true;
  const auto tokenizer = Load(file);
  EXPECT_THAT(Encode(*tokenizer,
                     "a\xCC\x81"
                     "e\xCC\x81"),
              ElementsAre(0xC3, 0xA1, 256));
  // Found in what the text became.
  EXPECT_THAT(Encode(*tokenizer, "ó"), ElementsAre(257));
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  EXPECT_THAT(Encode(*Load(file), "a\xCC\x81"), ElementsAre(0xC3, 0xA1));
}

TEST(TokenizerJsonTest, PrefixSpace) {
  json file = SmallTokenizer({}, {"<e>"});
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = Load(file);
  EXPECT_THAT(Encode(*tokenizer, "a<e>b"), ElementsAre(' ', 'a', 256, ' ', 'b'));
  EXPECT_THAT(Encode(*tokenizer, " a"), ElementsAre(' ', 'a'));
  EXPECT_THAT(Encode(*tokenizer, "\nb<e>c", /*starts_document=*/false),
              ElementsAre('\n', 'b', 256, ' ', 'c'));
}

TEST(TokenizerJsonTest, SplitSequence) {
  json file = SmallTokenizer({"1 2", "12 3", "a b"});
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Isolated"}},
        {{"type", "Split"}, {"pattern", {{"Regex", "\\p{L}"}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_THAT(Encode(*Load(file), "123.ab"), ElementsAre('1', '2', '3', '.', 'a', 'b'));
}

TEST(TokenizerJsonTest, EndOfText) {
  EXPECT_EQ(Load(SmallTokenizer({}, {"<|endoftext|>"}))->end_of_text(), TokenId{256});
  EXPECT_EQ(Load(SmallTokenizer({}, {"<x>"}))->end_of_text(), std::nullopt);
  const json file = SmallTokenizer({}, {"<|endoftext|>", "<x>"});
  EXPECT_EQ(Load(file, R"({"eos_token": "<x>"})")->end_of_text(), TokenId{257});
  EXPECT_EQ(Load(file, R"({"eos_token": {"content": "<x>"}})")->end_of_text(), TokenId{257});
  EXPECT_EQ(Load(file, R"({"eos_token": null})")->end_of_text(), TokenId{256});
  const auto wrong = ParseTokenizerJson(file.dump(), R"({"eos_token": "<y>"})", {});
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("<y>"));
}

struct BadCase {
  const char* words;
  absl::StatusCode code;
  std::function<void(json&)> change;
};

TEST(TokenizerJsonTest, RefusesByName) {
  constexpr auto kBroken = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
  const std::vector<BadCase> cases = {
      {"model is missing", kBroken, [](json& f) { f.erase("model"); }},
      {"model.type WordPiece", kUnsupported, [](json& f) { f["model"]["type"] = "WordPiece"; }},
      {"model.dropout", kUnsupported, [](json& f) { f["model"]["dropout"] = 0.1; }},
      {"end_of_word_suffix", kUnsupported,
       [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"byte_fallback", kUnsupported, [](json& f) { f["model"]["byte_fallback"] = true; }},
      {"model.vocab", kBroken, [](json& f) { f["model"].erase("vocab"); }},
      {"gives the id 5 to two tokens", kBroken, [](json& f) { f["model"]["vocab"]["t"] = 5; }},
      {"model.vocab[\"t\"] is -1", kBroken, [](json& f) { f["model"]["vocab"]["t"] = -1; }},
      {"is no whole number", kBroken, [](json& f) { f["model"]["vocab"]["t"] = "x"; }},
      {"the byte 0x21", kBroken, [](json& f) { f["model"]["vocab"].erase("!"); }},
      {"model.merges is missing", kBroken, [](json& f) { f["model"].erase("merges"); }},
      {"model.merges[0] is \"th\"", kBroken, [](json& f) { f["model"]["merges"][0] = "th"; }},
      {"model.merges[0] needs the token \"zz\"", kBroken,
       [](json& f) { f["model"]["merges"][0] = "z z"; }},
      // A merge that makes one of its own parts would go on for ever.
      {"model.merges[0] merges an empty token", kBroken,
       [](json& f) { f["model"]["merges"][0] = " t"; }},
      {"model.merges[0] is neither", kBroken, [](json& f) { f["model"]["merges"][0] = 7; }},
      {"normalizer.type NFKC", kUnsupported, [](json& f) { f["normalizer"] = {{"type", "NFKC"}}; }},
      {"pre_tokenizer without ByteLevel", kUnsupported,
       [](json& f) { f["pre_tokenizer"] = {{"type", "Digits"}}; }},
      {"pre_tokenizer.type null", kUnsupported, [](json& f) { f["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer.type Metaspace", kUnsupported,
       [](json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; }},
      {"behavior \"MergedWithNext\"", kUnsupported,
       [](json& f) {
         f["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "MergedWithNext"}};
       }},
      {"\\w", kUnsupported,
       [](json& f) {
         f["pre_tokenizer"] = {
             {"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"}, {"pattern", {{"Regex", "\\w"}}}, {"behavior", "Isolated"}},
               {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
       }},
      {"lstrip", kUnsupported, [](json& f) { f["added_tokens"][0]["lstrip"] = true; }},
      {"single_word", kUnsupported, [](json& f) { f["added_tokens"][0]["single_word"] = true; }},
      {"added_tokens[1]: id is 262", kBroken,
       [](json& f) {
         f["added_tokens"].push_back(f["added_tokens"][0]);
         f["added_tokens"][1]["content"] = "<other>";
       }},
      {"has 116 in the vocabulary", kBroken,
       [](json& f) { f["added_tokens"][0]["content"] = "t"; }},
  };
  for (const BadCase& bad : cases) {
    json file = SmallTokenizer(kMerges, {"<e>"});
    bad.change(file);
    const auto tokenizer = ParseTokenizerJson(file.dump(), "", {});
    EXPECT_EQ(tokenizer.status().code(), bad.code) << bad.words << ": " << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(bad.words));
  }
}

TEST(TokenizerJsonTest, BrokenJson) {
  for (const char* text : {"", "{", "[]", "{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}"}) {
    EXPECT_EQ(ParseTokenizerJson(text, "", {}).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace fsdp

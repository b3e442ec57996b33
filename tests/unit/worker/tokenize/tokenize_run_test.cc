#include "worker/tokenize/tokenize_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/tokenize/small_tokenizer.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class TokenizeRunTest : public testing::Test {
 protected:
  TokenizeRunTest() {
    folder_.Write("tokenizer.json",
                  SmallTokenizer({"t h", "th e", "Ġ the", "a b"}, {"<|endoftext|>"}).dump());
  }

  TokenizeOptions Options(const std::vector<std::string>& inputs,
                          const std::string& tokenizer = "tokenizer.json") {
    TokenizeOptions options;
    const auto loaded =
        LoadTokenizer(tokenizer == "bytes" ? tokenizer : folder_.Path(tokenizer), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    options.tokenizer = *loaded;
    options.documents.separator = loaded->tokenizer->end_of_text();
    for (const std::string& input : inputs) options.inputs.push_back(folder_.Path(input));
    options.output = folder_.Path("out");
    options.num_threads = 2;
    return options;
  }

  // All ids of the shards in `output`.
  std::vector<TokenId> Ids(const std::string& output = "out") {
    std::vector<TokenId> ids;
    const auto manifest = nlohmann::json::parse(folder_.Read(output + "/manifest.json"));
    for (const auto& shard : manifest["shards"]) {
      const std::string bytes = folder_.Read(output + "/" + shard["file"].get<std::string>());
      for (std::size_t at = 1024; at < bytes.size(); at += 2) {
        std::uint16_t id = 0;
        std::memcpy(&id, bytes.data() + at, 2);
        ids.push_back(id);
      }
    }
    return ids;
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizeRunTest, TextFilesAndLines) {
  folder_.Write("data/b.txt", "the");
  folder_.Write("data/a.jsonl",
                "{\"text\": \"ab\"}\n\n{\"id\": 1, \"text\": \"\"}\n{\"text\": \"c\\u00e9\"}");
  folder_.Write("data/deep/c.txt", "x\xFFy");
  folder_.Write("data/empty.txt", "");
  folder_.Write("data/.hidden", "no");
  const auto result = RunTokenize(Options({"data"}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Ids(), ElementsAre(259, 260, 'c', 0xC3, 0xA9, 260, 257, 260, 'x', 0xEF, 0xBF, 0xBD,
                                 'y', 260));
  EXPECT_EQ(result->counts.documents, 4);
  EXPECT_EQ(result->counts.empty_documents, 2);
  EXPECT_EQ(result->counts.replaced, 1);
  EXPECT_EQ(result->counts.source_bytes,
            static_cast<std::int64_t>(folder_.Read("data/a.jsonl").size() + 3 + 3));
  EXPECT_EQ(result->tokens, 14);
  EXPECT_EQ(result->sources, 4u);
  const auto manifest = nlohmann::json::parse(folder_.Read("out/manifest.json"));
  EXPECT_EQ(manifest["tokenizer"]["vocabSize"], 261);
  EXPECT_EQ(manifest["separator"], 260);
  EXPECT_EQ(manifest["counts"]["replacedSequences"], 1);
  EXPECT_THAT(manifest["sources"], SizeIs(4));
}

TEST_F(TokenizeRunTest, SeparatorBeforeOrNone) {
  folder_.Write("a.txt", "a");
  folder_.Write("b.txt", "b");
  TokenizeOptions options = Options({"a.txt", "b.txt"});
  options.documents.separator_first = true;
  ASSERT_TRUE(RunTokenize(options).ok());
  EXPECT_THAT(Ids(), ElementsAre(260, 'a', 260, 'b'));
  options.documents.separator.reset();
  EXPECT_EQ(RunTokenize(options).status().code(), absl::StatusCode::kFailedPrecondition);
  options.overwrite = true;
  ASSERT_TRUE(RunTokenize(options).ok());
  EXPECT_THAT(Ids(), ElementsAre('a', 'b'));
}

TEST_F(TokenizeRunTest, RawBytesStayAsTheyAre) {
  folder_.Write("a.bin.txt", std::string("a\xFF\n\0b", 5));
  ASSERT_TRUE(RunTokenize(Options({"a.bin.txt"}, "bytes")).ok());
  EXPECT_THAT(Ids(), ElementsAre('a', 0xFF, '\n', 0, 'b'));
}

std::string LongText() {
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    text += "the cab " + std::to_string(i * 7919) + (i % 3 == 0 ? ".\n\n  " : " ab\n");
    if (i % 97 == 0) text += "é<|endoftext|>\xF0\x9F\x98";
  }
  return text;
}

// One document in many parts is the document in one.
TEST_F(TokenizeRunTest, PartsThreadsAndShardsDoNotChangeTheIds) {
  folder_.Write("long.txt", LongText());
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"the line " + std::to_string(i) + "\"}\n";
  folder_.Write("lines.jsonl", lines);
  TokenizeOptions options = Options({"long.txt", "lines.jsonl"});
  options.num_threads = 1;
  ASSERT_TRUE(RunTokenize(options).ok());
  const std::vector<TokenId> expected = Ids();
  options.output = folder_.Path("parts");
  options.num_threads = 4;
  options.block_bytes = 700;
  options.shard_tokens = 999;
  int num_blocks = 0;
  options.on_progress = [&](const TokenizeProgress&) { ++num_blocks; };
  const auto result = RunTokenize(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(num_blocks, 100);
  EXPECT_EQ(result->counts.documents, 3001);
  EXPECT_EQ(Ids("parts"), expected);
  EXPECT_EQ(result->shards, (expected.size() + 998) / 999);
}

TEST_F(TokenizeRunTest, AFinishedRunDoesNothing) {
  folder_.Write("a.txt", LongText());
  ASSERT_TRUE(RunTokenize(Options({"a.txt"})).ok());
  const auto written = std::filesystem::last_write_time(folder_.Path("out/tokens_000000.bin"));
  const auto again = RunTokenize(Options({"a.txt"}));
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->was_complete);
  EXPECT_EQ(std::filesystem::last_write_time(folder_.Path("out/tokens_000000.bin")), written);
  folder_.Write("a.txt", "other");
  EXPECT_EQ(RunTokenize(Options({"a.txt"})).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenizeRunTest, LinesThatAreNoDocumentsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\": \"a\"}\nnot json\n", "bad.jsonl:2: not a JSON object"},
      {"{\"text\": \"a\"}\n\n{\"body\": \"x\"}\n", "bad.jsonl:3: no text in the field \"text\""},
      {"{\"text\": 5}\n", "bad.jsonl:1: no text"},
      {"[1]\n", "bad.jsonl:1: not a JSON object"}};
  for (const auto& [bytes, words] : cases) {
    folder_.Write("bad.jsonl", bytes);
    const auto result = RunTokenize(Options({"bad.jsonl"}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
  }
}

TEST_F(TokenizeRunTest, SourcesThatCannotBe) {
  folder_.Write("a.gz", "x");
  folder_.Write("a.txt", "x");
  std::filesystem::create_directories(folder_.Path("none"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"missing.txt"}, "missing.txt"},
      {{"*.nothing"}, "matches no file"},
      {{"none"}, "has no files"},
      {{"a.gz"}, "unpack"},
      {{"a.txt", "a.txt"}, "named twice"}};
  for (const auto& [inputs, words] : cases) {
    const auto result = RunTokenize(Options(inputs));
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
  }
  ASSERT_TRUE(RunTokenize(Options({"a.t*t"})).ok());
}

TEST_F(TokenizeRunTest, ASourceThatChangesMeanwhileIsNoticed) {
  folder_.Write("a.txt", LongText());
  TokenizeOptions options = Options({"a.txt"});
  options.block_bytes = 4000;
  int calls = 0;
  options.on_progress = [&](const TokenizeProgress&) {
    if (++calls == 1) std::ofstream(folder_.Path("a.txt"), std::ios::app) << "more";
  };
  const auto result = RunTokenize(options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("changed"));
}

}  // namespace
}  // namespace fsdp

// Shards of fsdp-tokenize are held against the manifest beside them.

#include "worker/data/token_manifest.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"
#include "tests/unit/worker/data/data_folder.h"
#include "worker/data/data_set.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

class TokenManifestTest : public DataFolderTest {
 protected:
  TokenManifestTest() { WriteShards("a", "0123456789abcdef"); }
  // Two shards of 4 tokens and their manifest.
  void WriteShards(const std::string& folder, const std::string& tokenizer_hash) const {
    std::string shards;
    for (int shard = 0; shard < 2; ++shard) {
      std::vector<std::int32_t> words(256);
      words[0] = 20240520;
      words[1] = 1;
      words[2] = 4;
      words.insert(words.end(), {0x00020001, 0x00040003});
      const std::string bytes(reinterpret_cast<const char*>(words.data()),
                              words.size() * sizeof(words[0]));
      const std::string name = absl::StrCat("tokens_00000", shard, ".bin");
      Write(absl::StrCat(folder, "/", name), bytes);
      absl::StrAppend(&shards, shard == 0 ? "" : ",", "{\"file\":\"", name,
                      "\",\"tokens\":4,\"crc32c\":", Crc32c(std::as_bytes(std::span(bytes))), "}");
    }
    Write(folder + "/manifest.json",
          absl::StrCat("{\"format\":\"llm.c\",\"tokenizer\":{\"path\":\"/", folder,
                       "\",\"kind\":\"bpe\",\"hash\":\"", tokenizer_hash, "\"},\"shards\":[",
                       shards, "]}"));
  }
  void Patch(const std::string& name, std::streamoff at, char byte) const {
    std::fstream file(Path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(byte);
  }
  static DataOptions Options(const std::string& path) {
    DataOptions options;
    options.source = SourceKind::kTokens;
    options.path = path;
    options.sequence_length = 2;
    options.vocab_size = 60000;
    return options;
  }
  static void ExpectError(const DataOptions& options, absl::StatusCode code,
                          const std::string& text) {
    const absl::Status status = OpenData(options).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
};

// One bit of an id: still below the vocabulary, so nothing else would see it.
TEST_F(TokenManifestTest, AShardThatWasChangedIsNamed) {
  EXPECT_EQ(OpenData(Options(Path("a"))).value().train->num_sequences(), 3);
  Patch("a/tokens_000001.bin", 1026, 7);
  for (const char* path : {"a", "a/*.bin", "a/tokens_000001.bin"}) {
    ExpectError(Options(Path(path)), absl::StatusCode::kDataLoss,
                "data.path: " + Path("a/tokens_000001.bin") + ": its CRC-32C is 0x");
  }
  EXPECT_TRUE(OpenData(Options(Path("a/tokens_000000.bin"))).ok());
  std::filesystem::remove(Path("a/manifest.json"));
  EXPECT_TRUE(OpenData(Options(Path("a"))).ok());
}

TEST_F(TokenManifestTest, TheHeaderIsChecked) {
  Patch("a/tokens_000000.bin", 500, 1);
  ExpectError(Options(Path("a")), absl::StatusCode::kDataLoss, "tokens_000000.bin: its CRC-32C");
}

TEST_F(TokenManifestTest, AShardThatIsMissingIsNamed) {
  std::filesystem::remove(Path("a/tokens_000000.bin"));
  ExpectError(Options(Path("a")), absl::StatusCode::kInvalidArgument,
              "data.path: " + Path("a/tokens_000000.bin") + " is missing: manifest.json");
  // Who names the others means them.
  EXPECT_TRUE(OpenData(Options(Path("a/*.bin"))).ok());
}

TEST_F(TokenManifestTest, DataOfDifferentTokenizersIsNotMixed) {
  WriteShards("b", "fedcba9876543210");
  WriteShards("c", "0123456789abcdef");
  DataOptions options = Options("");
  options.mixture = {{"", Path("a"), 1}, {"", Path("c"), 1}};
  EXPECT_TRUE(OpenData(options).ok());
  options.mixture[1].path = Path("b");
  ExpectError(options, absl::StatusCode::kInvalidArgument,
              "data.mixture[1].path: " + Path("b") +
                  " was made with the tokenizer bpe of hash fedcba9876543210");
  options = Options(Path("a"));
  options.validation_path = Path("b");
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.validationPath: ");
  options = Options(Path("[ab]/*.bin"));
  ExpectError(options, absl::StatusCode::kInvalidArgument, "a path must name files of one kind");
}

TEST_F(TokenManifestTest, AManifestOfAnotherProgramIsLeftAlone) {
  for (const char* text : {"[]", "{}", R"({"shards": 3})", R"({"shards": [], "tokenizer": "x"})"}) {
    Write("a/manifest.json", text);
    EXPECT_TRUE(OpenData(Options(Path("a"))).ok()) << text;
  }
  Write("a/manifest.json", "{\"shards\": [");
  ExpectError(Options(Path("a")), absl::StatusCode::kInvalidArgument, "manifest.json is damaged");
}

}  // namespace
}  // namespace fsdp

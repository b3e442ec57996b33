// Token files are told apart by what they begin with.

#include "worker/data/token_format.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_folder.h"
#include "worker/data/data_set.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// As llm.c's data scripts write it.
std::string Header(std::int32_t magic, std::int32_t version, std::int32_t num_tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = num_tokens;
  return Bytes(words);
}

class TokenFormatTest : public DataFolderTest {
 protected:
  static absl::StatusOr<DataSet> Open(const std::string& path, int raw_token_bytes = 2) {
    DataOptions options;
    options.source = SourceKind::kTokens;
    options.path = path;
    options.token_bytes = raw_token_bytes;
    options.sequence_length = 4;
    options.vocab_size = 128000;
    options.shuffle = false;
    return OpenData(options);
  }
  // The first sequence and the token after it.
  static std::vector<std::int32_t> First(const absl::StatusOr<DataSet>& data) {
    EXPECT_TRUE(data.ok()) << data.status();
    if (!data.ok()) return {};
    std::vector<std::int32_t> tokens(4);
    std::vector<std::int32_t> targets(4);
    EXPECT_TRUE(data->train->Read(0, tokens, targets).ok());
    tokens.push_back(targets.back());
    return tokens;
  }
  static void ExpectRefused(const std::string& path, const std::vector<std::string>& texts) {
    const absl::Status status = Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    for (const std::string& text : texts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }

  const std::vector<std::uint16_t> small_ = {1, 2, 3, 4, 50256};
  const std::vector<std::uint32_t> large_ = {100000, 2, 3, 4, 127999};
};

TEST_F(TokenFormatTest, RawIdsHaveTheWidthThatTheJobNames) {
  EXPECT_THAT(First(Open(Write("raw", Bytes(small_)))), ElementsAre(1, 2, 3, 4, 50256));
  EXPECT_THAT(First(Open(Write("raw", Bytes(large_)), 4)), ElementsAre(100000, 2, 3, 4, 127999));
}

TEST_F(TokenFormatTest, AHeaderGivesTheWidthWhateverTheJobNames) {
  const std::string gpt2 = Write("gpt2", Header(20240520, 1, 5) + Bytes(small_));
  const std::string llama3 = Write("llama3", Header(20240801, 7, 5) + Bytes(large_));
  for (const int raw_token_bytes : {2, 4}) {
    EXPECT_THAT(First(Open(gpt2, raw_token_bytes)), ElementsAre(1, 2, 3, 4, 50256));
    EXPECT_THAT(First(Open(llama3, raw_token_bytes)), ElementsAre(100000, 2, 3, 4, 127999));
  }
}

// Shards of a folder follow each other without a trace of their headers.
TEST_F(TokenFormatTest, ShardsAreOneStream) {
  std::filesystem::create_directory(directory_ + "/shards");
  Write("shards/1", Header(20240520, 1, 3) + Bytes<std::uint16_t>({10, 11, 12}));
  Write("shards/2", Header(20240520, 1, 0));
  Write("shards/3", Bytes<std::uint16_t>({13, 14, 15}));
  const auto data = Open(directory_ + "/shards");
  EXPECT_THAT(First(data), ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(data->train->identity().size_bytes, 12);
  Write("shards/4", Header(20240801, 7, 1) + Bytes<std::uint32_t>({1}));
  ExpectRefused(directory_ + "/shards", {"tokens of 4 bytes", "shards/1 of 2"});
}

TEST_F(TokenFormatTest, ADamagedHeaderIsNamed) {
  const std::string good = Header(20240520, 1, 5) + Bytes(small_);
  ExpectRefused(Write("cut", good.substr(0, 600)), {"600 bytes", "1024", "it was cut"});
  ExpectRefused(Write("magic alone", good.substr(0, 4)), {"4 bytes", "it was cut"});
  ExpectRefused(Write("version", Header(20240520, 2, 5) + Bytes(small_)),
                {"version 2", "version 1 is read"});
  for (const std::int32_t count : {4, 6, 0, -5, 2147483647}) {
    ExpectRefused(Write("count", Header(20240520, 1, count) + Bytes(small_)),
                  {std::to_string(count) + " tokens of 2 bytes", "10 bytes follow"});
  }
  ExpectRefused(Write("odd", good + "x"), {"5 tokens", "11 bytes follow"});
  ExpectRefused(Write("none", Header(20240520, 1, 0)), {"is empty"});
}

TEST_F(TokenFormatTest, AMegatronIndexIsNoTokens) {
  const std::string index = std::string("MMIDIDX\0\0", 9) + std::string(500, '\1');
  ExpectRefused(Write("text_document", index), {"Megatron index", "by the ending .idx"});
}

TEST_F(TokenFormatTest, AnIdOutsideTheVocabularyIsFoundBehindTheHeader) {
  std::vector<std::uint32_t> ids = large_;
  ids[3] = 128000;
  const std::string path = Write("a.bin", Header(20240801, 7, 5) + Bytes(ids));
  const absl::Status status = Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a.bin, byte 1036: token id 128000 is not below model.vocabSize 128000"));
}

TEST_F(TokenFormatTest, AHeadedFileThatChangesWhileTrainingIsNamed) {
  const std::string path = Write("a.bin", Header(20240520, 1, 5) + Bytes(small_));
  const auto data = Open(path);
  std::filesystem::resize_file(path, 1030);
  std::vector<std::int32_t> tokens(4);
  const absl::Status status = data->train->Read(0, tokens, tokens);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1034 bytes at the start, 1030 now"));
}

}  // namespace
}  // namespace fsdp

// Megatron's pairs: read by any of their names, refused when they do not fit together.

#include "worker/data/megatron_index.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
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

// As Megatron-LM's IndexedDatasetBuilder writes it, with its parts open to damage.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> sizes;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> documents;
  std::string modes;

  // One sequence a document, as preprocess_data makes it.
  static Index Of(const std::vector<std::int32_t>& sizes, int width = 2) {
    Index index;
    index.code = width == 2 ? 8 : 4;
    index.documents.push_back(0);
    std::int64_t at = 0;
    for (const std::int32_t size : sizes) {
      index.sizes.push_back(size);
      index.pointers.push_back(at);
      at += std::int64_t{size} * width;
      index.documents.push_back(static_cast<std::int64_t>(index.sizes.size()));
    }
    return index;
  }
  [[nodiscard]] std::string Text() const {
    std::string text = magic;
    text += Bytes(std::vector<std::uint64_t>{version});
    text += static_cast<char>(code);
    text += Bytes(std::vector<std::uint64_t>{sizes.size(), documents.size()});
    return text + Bytes(sizes) + Bytes(pointers) + Bytes(documents) + modes;
  }
};

class MegatronIndexTest : public DataFolderTest {
 protected:
  static DataOptions Options(const std::string& path) {
    DataOptions options;
    options.source = SourceKind::kTokens;
    options.path = path;
    options.token_bytes = 4;  // the index has its own
    options.sequence_length = 4;
    options.vocab_size = 60000;
    options.shuffle = false;
    return options;
  }
  static std::vector<std::int32_t> First(const absl::StatusOr<DataSet>& data) {
    EXPECT_TRUE(data.ok()) << data.status();
    if (!data.ok()) return {};
    std::vector<std::int32_t> tokens(4);
    std::vector<std::int32_t> targets(4);
    EXPECT_TRUE(data->train->Read(0, tokens, targets).ok());
    return tokens;
  }
  void ExpectRefused(const Index& index, const std::string& text) const {
    ExpectRefused(index.Text(), text);
  }
  void ExpectRefused(const std::string& index, const std::string& text) const {
    Write("a.bin", Bytes(ids_));
    Write("a.idx", index);
    for (const char* name : {"a.bin", "a.idx", "a"}) {
      const absl::Status status = OpenData(Options(Path(name))).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("data.path: " + Path("a.idx")));
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }

  const std::vector<std::uint16_t> ids_ = {1, 2, 3, 40000, 5, 6, 7, 8, 9, 10};
};

TEST_F(MegatronIndexTest, APairIsFoundByAnyOfItsNames) {
  Write("a.bin", Bytes(ids_));
  Write("a.idx", Index::Of({3, 0, 5, 2}).Text());
  for (const char* name : {"a", "a.bin", "a.idx", "a.*", "*", "*.idx", ""}) {
    const auto data = OpenData(Options(Path(name)));
    EXPECT_THAT(First(data), ElementsAre(1, 2, 3, 40000)) << name;
    EXPECT_EQ(data->train->identity().size_bytes, 20) << name;
  }
  const std::vector<std::int32_t> wide = {1, 2, 50000, 4, 5, 6};
  Write("b.bin", Bytes(wide));
  Write("b.idx", Index::Of({6}, 4).Text());
  EXPECT_THAT(First(OpenData(Options(Path("b")))), ElementsAre(1, 2, 50000, 4));
  // A folder of both has two widths.
  EXPECT_THAT(std::string(OpenData(Options(directory_)).status().message()),
              HasSubstr("b.bin has tokens of 4 bytes"));
}

TEST_F(MegatronIndexTest, DocumentsBeginWhereTheIndexSays) {
  Index index = Index::Of({3, 0, 5, 2});
  index.documents = {0, 1, 1, 3, 4};  // two sequences in one; one document without tokens
  Write("a.idx", index.Text());
  ContentHash hash;
  const auto read = ReadMegatronIndex(Path("a.idx"), 20, true, &hash);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->token_bytes, 2);
  EXPECT_EQ(read->num_documents, 4);
  EXPECT_THAT(read->document_starts, ElementsAre(0, 3, 8));
}

TEST_F(MegatronIndexTest, ManyDocumentsAreReadInPieces) {
  const std::vector<std::int32_t> sizes(200'000, 3);
  Write("a.idx", Index::Of(sizes).Text());
  ContentHash hash;
  const auto read = ReadMegatronIndex(Path("a.idx"), 1'200'000, true, &hash);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->document_starts.size(), 200'000U);
  EXPECT_EQ(read->document_starts[199'999], 599'997);
}

TEST_F(MegatronIndexTest, TheFingerprintSeesTheIndex) {
  Write("a.bin", Bytes(ids_));
  const auto fingerprint = [&](const std::vector<std::int32_t>& sizes) {
    Write("a.idx", Index::Of(sizes).Text());
    return OpenData(Options(Path("a"))).value().train->identity().fingerprint;
  };
  const std::uint64_t first = fingerprint({4, 6});
  EXPECT_EQ(fingerprint({4, 6}), first);
  EXPECT_NE(fingerprint({5, 5}), first);
}

TEST_F(MegatronIndexTest, HalfAPairIsRefused) {
  Write("a.idx", Index::Of({10}).Text());
  const auto expect = [&](const std::string& name, const std::string& text) {
    const absl::Status status = OpenData(Options(Path(name))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect("a.idx", "has no " + Path("a.bin") + " beside it");
  expect("a", "has no " + Path("a.bin") + " beside it");
  expect("", "has no " + Path("a.bin") + " beside it");
  std::filesystem::remove(Path("a.idx"));
  Write("a.bin", Bytes(ids_));
  expect("a", "has no " + Path("a.idx") + " beside it");
}

TEST_F(MegatronIndexTest, APairThatDoesNotFitIsRefusedWithWhatIsWrong) {
  const Index good = Index::Of({3, 5, 2});
  const std::string text = good.Text();
  for (std::size_t size = 0; size < text.size(); ++size) {
    ExpectRefused(text.substr(0, size), size < 9    ? "is no Megatron index"
                                        : size < 34 ? "fewer than its header's 34"
                                                    : "bytes follow it: it was cut or damaged");
  }
  ExpectRefused(text + "x", "3 sequences and 4 entries of documents, and 69 bytes follow it");
  Index bad = good;
  bad.magic[0] = 'X';
  ExpectRefused(bad, "is no Megatron index");
  bad = good;
  bad.version = 2;
  ExpectRefused(bad, "of version 2; version 1 is read");
  bad = good;
  bad.code = 5;
  ExpectRefused(bad, "of type 5 (int64); 8 (uint16) and 4 (int32) are read");
  bad.code = 77;
  ExpectRefused(bad, "of type 77 (unknown)");
  bad = good;
  bad.modes = std::string(3, '\0');
  ExpectRefused(bad, "multimodal");
  bad = good;
  bad.sizes[2] = 1;
  ExpectRefused(bad, "its sequences take 18 bytes, and the .bin has 20");
  bad = good;
  bad.sizes[1] = -5;
  ExpectRefused(bad, "sequence 1 has -5 tokens");
  bad = good;
  bad.pointers[2] = 14;
  ExpectRefused(bad,
                "sequence 2 has 2 tokens from byte 14 of the .bin, and those before it end at 16");
  bad = good;
  bad.documents = {0, 2, 1, 3};
  ExpectRefused(bad, "a document begins at sequence 1 of 3, behind one that begins at 2");
  bad.documents = {1, 3};
  ExpectRefused(bad, "a document begins at sequence 1 of 3");
  bad.documents = {0, 4};
  ExpectRefused(bad, "a document begins at sequence 4 of 3");
  bad.documents = {0, 2};
  ExpectRefused(bad, "its documents end at sequence 2 of 3");
  bad.documents = {};
  ExpectRefused(bad, "its documents end at sequence 0 of 3");
  // Counts that would overflow.
  std::string huge = text;
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  std::memcpy(huge.data() + 18, &most, sizeof(most));
  ExpectRefused(huge, "bytes follow it");
  std::memcpy(huge.data() + 26, &most, sizeof(most));
  ExpectRefused(huge, "bytes follow it");
}

// int32 ids may be negative in the file; none is a token.
TEST_F(MegatronIndexTest, ANegativeIdIsOutsideTheVocabulary) {
  Write("a.bin", Bytes(std::vector<std::int32_t>{1, 2, 3, -1, 5, 6}));
  Write("a.idx", Index::Of({6}, 4).Text());
  const absl::Status status = OpenData(Options(Path("a"))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.bin, byte 12: token id 4294967295"));
}

TEST_F(MegatronIndexTest, ASourceOfAMixtureMayBeAPair) {
  Write("a.bin", Bytes(ids_));
  Write("a.idx", Index::Of({10}).Text());
  Write("raw", Bytes(std::vector<std::uint16_t>(10, 7)));
  DataOptions options = Options("");
  options.token_bytes = 2;
  options.mixture = {{"", Path("raw"), 1}, {"", Path("a"), 1}};
  EXPECT_EQ(OpenData(options).value().train->num_sequences(), 4);
  Write("a.idx", Index::Of({9}).Text());
  EXPECT_THAT(std::string(OpenData(options).status().message()),
              HasSubstr("data.mixture[1].path: " + Path("a.idx")));
}

}  // namespace
}  // namespace fsdp

// Where documents are known, the first token of one is no target of the last of another.

#include <cstdint>
#include <cstdlib>
#include <set>
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

class DocumentsTest : public DataFolderTest {
 protected:
  // 3, 4 and 3 tokens, as one document each.
  void WritePair(const std::string& prefix) const {
    Write(prefix + ".bin", Bytes(std::vector<std::uint16_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    Write(prefix + ".idx", std::string("MMIDIDX\0\0", 9) + Bytes(std::vector<std::uint64_t>{1}) +
                               '\x08' + Bytes(std::vector<std::uint64_t>{3, 4}) +
                               Bytes(std::vector<std::int32_t>{3, 4, 3}) +
                               Bytes(std::vector<std::int64_t>{0, 6, 14, 0, 1, 2, 3}));
  }
  [[nodiscard]] static DataOptions Options(SourceKind source, const std::string& path) {
    DataOptions options;
    options.source = source;
    options.path = path;
    options.sequence_length = 3;
    options.vocab_size = 256;
    options.shuffle = false;
    options.mask_document_ends = true;
    return options;
  }
  // Of the first `sequences`, one after another.
  static std::vector<std::int32_t> Targets(BatchSource& source, std::size_t sequences) {
    std::vector<std::int32_t> tokens(sequences * 3);
    std::vector<std::int32_t> targets(sequences * 3);
    EXPECT_TRUE(source.Read(0, tokens, targets).ok());
    return targets;
  }
  static std::vector<std::int32_t> TrainingTargets(const DataOptions& options,
                                                   std::size_t sequences) {
    const auto data = OpenData(options);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? Targets(*data->train, sequences) : std::vector<std::int32_t>();
  }
  static void ExpectError(const DataOptions& options, const std::string& text) {
    const absl::Status status = OpenData(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
};

TEST_F(DocumentsTest, AFileOfTextIsADocument) {
  Write("t/1", "abc");
  Write("t/2", "");
  Write("t/3", "defg");
  Write("t/4", "hij");
  DataOptions options = Options(SourceKind::kText, directory_ + "/t");
  EXPECT_THAT(TrainingTargets(options, 3),
              ElementsAre('b', 'c', -100, 'e', 'f', 'g', -100, 'i', 'j'));
  options.mask_document_ends = false;
  EXPECT_THAT(TrainingTargets(options, 1), ElementsAre('b', 'c', 'd'));
}

TEST_F(DocumentsTest, AMegatronIndexTellsDocuments) {
  WritePair("m/a");
  EXPECT_THAT(TrainingTargets(Options(SourceKind::kTokens, directory_ + "/m/a"), 3),
              ElementsAre(2, 3, -100, 5, 6, 7, -100, 9, 10));
  // The next pair begins with a document.
  WritePair("m/b");
  EXPECT_THAT(TrainingTargets(Options(SourceKind::kTokens, directory_ + "/m"), 6),
              ElementsAre(2, 3, -100, 5, 6, 7, -100, 9, 10, -100, 2, 3, -100, 5, 6, 7, -100, 9));
}

TEST_F(DocumentsTest, ASeparatorEndsDocumentsAlsoWhereAShardDoes) {
  Write("s/1", Bytes(std::vector<std::uint16_t>{1, 2, 0, 3, 0}));
  Write("s/2", Bytes(std::vector<std::uint16_t>{4, 5}));
  Write("s/3", Bytes(std::vector<std::uint16_t>{6, 0, 7}));
  DataOptions options = Options(SourceKind::kTokens, directory_ + "/s");
  options.document_separator = 0;
  EXPECT_THAT(TrainingTargets(options, 3), ElementsAre(2, 0, -100, 0, -100, 5, 6, 0, -100));
}

TEST_F(DocumentsTest, TheSplitsAreMaskedWhereTheyAre) {
  WritePair("a");
  DataOptions options = Options(SourceKind::kTokens, directory_ + "/a");
  options.validation_fraction = 0.5;
  const auto data = OpenData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Targets(*data->train, 1), ElementsAre(2, 3, -100));
  EXPECT_THAT(Targets(*data->validation, 1), ElementsAre(7, -100, 9));
  options.validation_fraction = 0;
  options.validation_path = Write("raw", Bytes(std::vector<std::uint16_t>{1, 0, 2, 3}));
  ExpectError(options, "data.validationPath: " + options.validation_path + ": nothing tells where");
  options.document_separator = 0;
  EXPECT_THAT(Targets(*OpenData(options)->validation, 1), ElementsAre(0, -100, 3));
}

TEST_F(DocumentsTest, SourcesOfAMixtureAreMaskedEachInItsWay) {
  WritePair("a");
  DataOptions options = Options(SourceKind::kTokens, "");
  options.document_separator = 0;
  const std::string raw = Write("raw", Bytes(std::vector<std::uint16_t>{20, 0, 21, 22}));
  options.mixture = {{"", directory_ + "/a", 2}, {"", raw, 1}};
  const std::vector<std::int32_t> targets = TrainingTargets(options, 3);
  EXPECT_EQ(std::multiset(targets.begin(), targets.end()),
            (std::multiset<std::int32_t>{2, 3, -100, 5, 6, 7, 0, -100, 22}));
}

TEST_F(DocumentsTest, EachTokenIsToldWhereItsDocumentBegins) {
  Write("t/1", "abc");
  Write("t/2", "");
  Write("t/3", "d");
  Write("t/4", "efghijkl");
  DataOptions options = Options(SourceKind::kText, directory_ + "/t");
  options.mask_document_ends = false;
  options.reset_attention = true;
  options.sequence_length = 5;
  options.validation_fraction = 0.5;
  const auto data = OpenData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::int32_t> tokens(5);
  std::vector<std::int32_t> targets(5);
  std::vector<std::int32_t> begins(5, -1);
  ASSERT_TRUE(data->train->Read(0, tokens, targets, begins).ok());
  EXPECT_THAT(begins, ElementsAre(0, 0, 0, 3, 4));
  // Without the mask every token has a target.
  EXPECT_THAT(targets, ElementsAre('b', 'c', 'd', 'e', 'f'));
  // The split begins inside the last document.
  ASSERT_TRUE(data->validation->Read(0, tokens, targets, begins).ok());
  EXPECT_THAT(tokens, ElementsAre('g', 'h', 'i', 'j', 'k'));
  EXPECT_THAT(begins, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_EQ(data->train->Read(0, tokens, targets, std::span(begins).first(4)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(DocumentsTest, BeginsAreThoseOfEachSequence) {
  WritePair("a");
  DataOptions options = Options(SourceKind::kTokens, directory_ + "/a");
  options.reset_attention = true;
  std::vector<std::int32_t> tokens(9);
  std::vector<std::int32_t> targets(9);
  std::vector<std::int32_t> begins(9, -1);
  const auto pair = OpenData(options);
  ASSERT_TRUE(pair.ok()) << pair.status();
  ASSERT_TRUE(pair->train->Read(0, tokens, targets, begins).ok());
  EXPECT_THAT(tokens, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(begins, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(targets, ElementsAre(2, 3, -100, 5, 6, 7, -100, 9, 10));

  // In a mixture they come from where the sequence does.
  options.document_separator = 0;
  const std::string raw = Write("raw", Bytes(std::vector<std::uint16_t>{20, 0, 21, 22}));
  options.path = "";
  options.mixture = {{"", directory_ + "/a", 2}, {"", raw, 1}};
  const auto mixed = OpenData(options);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  ASSERT_TRUE(mixed->train->Read(0, tokens, targets, begins).ok());
  std::set<std::vector<std::int32_t>> sequences;
  for (std::size_t at = 0; at < 9; at += 3) {
    sequences.insert({tokens[at], begins[at], begins[at + 1], begins[at + 2]});
  }
  EXPECT_EQ(sequences,
            (std::set<std::vector<std::int32_t>>{{1, 0, 0, 0}, {4, 0, 0, 0}, {20, 0, 0, 2}}));
}

TEST_F(DocumentsTest, WhereDocumentsAreNotKnownASequenceIsOne) {
  DataOptions options = Options(SourceKind::kSynthetic, "");
  options.mask_document_ends = false;
  std::vector<std::int32_t> tokens(3);
  std::vector<std::int32_t> targets(3);
  std::vector<std::int32_t> begins(3, -1);
  ASSERT_TRUE(OpenData(options).value().train->Read(0, tokens, targets, begins).ok());
  EXPECT_THAT(begins, ElementsAre(0, 0, 0));
}

TEST_F(DocumentsTest, DocumentsThatNothingTellsAreRefused) {
  const std::string raw = Write("raw.bin", Bytes(std::vector<std::uint16_t>{1, 2, 3, 4}));
  DataOptions options = Options(SourceKind::kTokens, raw);
  ExpectError(options, "data.path: " + raw +
                           ": nothing tells where its documents begin, which "
                           "data.maskDocumentEnds needs");
  options.reset_attention = true;
  options.mask_document_ends = false;
  ExpectError(options, "which data.resetAttention needs: give data.documentSeparator");
  options.document_separator = 9;
  ExpectError(options, "data.path: " + raw + ": data.documentSeparator 9 is nowhere in it");
}

TEST_F(DocumentsTest, TheFingerprintSeesTheMask) {
  const std::string raw = Write("raw", Bytes(std::vector<std::uint16_t>{1, 2, 3, 4}));
  DataOptions options = Options(SourceKind::kTokens, raw);
  std::set<std::uint64_t> seen;
  for (const std::int64_t separator : {2, 3}) {
    options.document_separator = separator;
    seen.insert(OpenData(options).value().train->identity().fingerprint);
  }
  options.reset_attention = true;
  seen.insert(OpenData(options).value().train->identity().fingerprint);
  options.mask_document_ends = false;
  seen.insert(OpenData(options).value().train->identity().fingerprint);
  options.reset_attention = false;
  seen.insert(OpenData(options).value().train->identity().fingerprint);
  EXPECT_EQ(seen.size(), 5U);
}

}  // namespace
}  // namespace fsdp

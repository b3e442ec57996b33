#include "worker/data/data_set.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_folder.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

class DataSetTest : public DataFolderTest {
 protected:
  std::string WriteTokens(const std::string& name, const std::vector<std::uint16_t>& tokens) {
    return Write(name, std::string(reinterpret_cast<const char*>(tokens.data()),
                                   tokens.size() * sizeof(tokens[0])));
  }
  static DataOptions Tokens(const std::string& path) {
    DataOptions options;
    options.source = SourceKind::kTokens;
    options.path = path;
    options.sequence_length = 4;
    options.vocab_size = 100;
    return options;
  }
  static std::vector<std::uint16_t> Counting(int count) {
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
  }
  static void ExpectError(const DataOptions& options, absl::StatusCode code,
                          const std::string& text) {
    const auto data = OpenData(options);
    EXPECT_EQ(data.status().code(), code) << data.status();
    EXPECT_THAT(std::string(data.status().message()), HasSubstr(text));
  }
};

std::vector<std::int32_t> ReadOne(BatchSource& source, std::int64_t position,
                                  std::vector<std::int32_t>* targets = nullptr) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.sequence_length()));
  std::vector<std::int32_t> next(tokens.size());
  EXPECT_TRUE(source.Read(position, tokens, next).ok());
  if (targets != nullptr) *targets = next;
  return tokens;
}

TEST_F(DataSetTest, SequencesShareTheTokenAtTheirBorder) {
  DataOptions options = Tokens(WriteTokens("a.bin", Counting(14)));
  options.shuffle = false;
  const DataSet data = OpenData(options).value();
  EXPECT_EQ(data.train->num_sequences(), 3);  // (14 - 1) / 4
  std::vector<std::int32_t> targets;
  EXPECT_THAT(ReadOne(*data.train, 1, &targets), testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(targets, testing::ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(ReadOne(*data.train, 3), testing::ElementsAre(0, 1, 2, 3));  // the second pass
}

TEST_F(DataSetTest, AShuffledPassVisitsEverySequenceOnce) {
  const DataSet data = OpenData(Tokens(WriteTokens("a.bin", Counting(100)))).value();
  const std::int64_t n = data.train->num_sequences();
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> second;
  for (std::int64_t p = 0; p < n; ++p) {
    first.push_back(ReadOne(*data.train, p)[0]);
    second.push_back(ReadOne(*data.train, n + p)[0]);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), static_cast<std::size_t>(n));
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
}

// What makes the loss independent of the world size: a batch is the same however it is cut.
TEST_F(DataSetTest, ABatchIsItsSequencesOneByOne) {
  const DataSet data = OpenData(Tokens(WriteTokens("a.bin", Counting(100)))).value();
  std::vector<std::int32_t> tokens(4 * 7);
  std::vector<std::int32_t> targets(4 * 7);
  ASSERT_TRUE(data.train->Read(20, tokens, targets).ok());
  for (std::int64_t i = 0; i < 7; ++i) {
    const std::vector<std::int32_t> one = ReadOne(*data.train, 20 + i);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), tokens.begin() + i * 4)) << i;
  }
}

TEST_F(DataSetTest, ValidationIsTheEndAndNothingIsInBoth) {
  DataOptions options = Tokens(WriteTokens("a.bin", Counting(100)));
  options.validation_fraction = 0.25;
  const DataSet data = OpenData(options).value();
  ASSERT_NE(data.validation, nullptr);
  EXPECT_EQ(data.train->num_sequences(), 18);      // (75 - 1) / 4
  EXPECT_EQ(data.validation->num_sequences(), 6);  // (25 - 1) / 4
  EXPECT_EQ(ReadOne(*data.validation, 0)[0], 75);
  std::vector<std::int32_t> targets;
  for (std::int64_t p = 0; p < 18; ++p) {
    ReadOne(*data.train, p, &targets);
    EXPECT_LT(targets.back(), 75);
  }
}

TEST_F(DataSetTest, ValidationMayHaveAFileOfItsOwn) {
  DataOptions options = Tokens(WriteTokens("a.bin", Counting(30)));
  options.validation_path = WriteTokens("b.bin", {9, 9, 9, 9, 9, 9});
  const DataSet data = OpenData(options).value();
  EXPECT_EQ(data.train->num_sequences(), 7);
  EXPECT_THAT(ReadOne(*data.validation, 0), testing::Each(9));
}

TEST_F(DataSetTest, TextIsBytesAndAFolderIsItsFilesInOrder) {
  std::filesystem::create_directory(directory_ + "/texts");
  Write("texts/2", "efghij");
  Write("texts/1", "abcd\xff");
  Write("texts/.hidden", "zzz");
  DataOptions options;
  options.source = SourceKind::kText;
  options.path = directory_ + "/texts";
  options.sequence_length = 5;
  options.vocab_size = 256;
  options.shuffle = false;
  const DataSet data = OpenData(options).value();
  EXPECT_EQ(data.train->num_sequences(), 2);
  EXPECT_THAT(ReadOne(*data.train, 0), testing::ElementsAre('a', 'b', 'c', 'd', 255));
  EXPECT_THAT(ReadOne(*data.train, 1), testing::ElementsAre('e', 'f', 'g', 'h', 'i'));
  options.path = directory_ + "/texts/[12]";
  EXPECT_EQ(OpenData(options).value().train->num_sequences(), 2);
}

TEST_F(DataSetTest, IdentitySeesEveryByteAndTheSplit) {
  const std::string path = WriteTokens("a.bin", Counting(100));
  const auto fingerprint = [](const DataOptions& options) {
    return OpenData(options).value().train->identity().fingerprint;
  };
  const DataOptions options = Tokens(path);
  std::set<std::uint64_t> seen = {fingerprint(options)};
  EXPECT_EQ(fingerprint(options), *seen.begin());
  DataOptions other = options;
  other.validation_fraction = 0.1;
  seen.insert(fingerprint(other));
  other = options;
  other.seed = 1;
  seen.insert(fingerprint(other));
  std::vector<std::uint16_t> changed = Counting(100);
  changed[57] = 58;
  WriteTokens("a.bin", changed);
  seen.insert(fingerprint(options));
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(DataSetTest, BadFilesAreNamed) {
  ExpectError(Tokens(directory_ + "/none.bin"), absl::StatusCode::kNotFound, "none.bin");
  ExpectError(Tokens(directory_ + "/*.bin"), absl::StatusCode::kNotFound, "no file matches");
  ExpectError(Tokens(Write("empty.bin", "")), absl::StatusCode::kInvalidArgument, "is empty");
  ExpectError(Tokens(Write("odd.bin", "12345678901")), absl::StatusCode::kInvalidArgument,
              "11 bytes");
  ExpectError(Tokens(WriteTokens("short.bin", Counting(4))), absl::StatusCode::kInvalidArgument,
              "4 tokens; one sequence of data.sequenceLength 4 needs 5");
  DataOptions options = Tokens(WriteTokens("split.bin", Counting(40)));
  options.validation_fraction = 0.1;  // 4 tokens
  ExpectError(options, absl::StatusCode::kInvalidArgument, "the validation split has 4 tokens");
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ExpectError(Tokens(fifo), absl::StatusCode::kInvalidArgument, "not a regular file");
  std::filesystem::create_directory(directory_ + "/nothing");
  ExpectError(Tokens(directory_ + "/nothing"), absl::StatusCode::kInvalidArgument, "no files");
}

TEST_F(DataSetTest, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {
  std::vector<std::uint16_t> tokens = Counting(90);
  tokens[77] = 100;
  ExpectError(Tokens(WriteTokens("a.bin", tokens)), absl::StatusCode::kDataLoss,
              "a.bin, byte 154: token id 100 is not below model.vocabSize 100");
}

TEST_F(DataSetTest, OptionsThatContradictAreNamed) {
  DataOptions options = Tokens(WriteTokens("a.bin", Counting(40)));
  options.sequence_length = 0;
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.sequenceLength is 0");
  options = Tokens(options.path);
  options.validation_fraction = std::nan("");
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.validationFraction");
  options = Tokens(options.path);
  options.targets = TargetRule::kIndependent;
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.targets");
  options = Tokens(options.path);
  options.source = SourceKind::kText;
  ExpectError(options, absl::StatusCode::kInvalidArgument, "at least 256");
  options = Tokens("");
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.path is empty");
}

TEST_F(DataSetTest, AFileCutWhileTrainingIsAnErrorThatNamesIt) {
  const std::string path = WriteTokens("a.bin", Counting(100));
  const DataSet data = OpenData(Tokens(path)).value();
  std::filesystem::resize_file(path, 10);
  std::vector<std::int32_t> tokens(4);
  std::vector<std::int32_t> targets(4);
  const absl::Status status = data.train->Read(0, tokens, targets);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.bin changed while training runs"));
}

// Sources "a" with ids 0.., "b" with 30.. and "c" with 60..: a token tells where it is from.
class MixtureTest : public DataSetTest {
 protected:
  DataOptions Mixture(const std::vector<double>& weights) {
    DataOptions options = Tokens("");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::vector<std::uint16_t> tokens = Counting(i == 1 ? 9 : 25);
      for (std::uint16_t& token : tokens) token = static_cast<std::uint16_t>(token + 30 * i);
      const std::string name(1, static_cast<char>('a' + i));
      options.mixture.push_back({name, WriteTokens(name + ".bin", tokens), weights[i]});
    }
    return options;
  }
  static std::size_t SourceOf(const std::vector<std::int32_t>& tokens) {
    return static_cast<std::size_t>(tokens[0] / 30);
  }
};

TEST_F(MixtureTest, PositionsAreDrawnByWeightAndEachSourceHasItsOwnPasses) {
  const DataSet data = OpenData(Mixture({0.7, 0.2, 0.1})).value();
  EXPECT_EQ(data.train->num_sequences(), 6 + 2 + 6);
  std::vector<std::vector<std::int32_t>> firsts(3);
  for (std::int64_t p = 0; p < 120; ++p) {
    std::vector<std::int32_t> targets;
    const std::vector<std::int32_t> tokens = ReadOne(*data.train, p, &targets);
    EXPECT_EQ(targets.back(), tokens.back() + 1);
    firsts[SourceOf(tokens)].push_back(tokens[0]);
    const std::vector<PartUse> uses = UseBefore(data, p + 1);
    const double weights[] = {0.7, 0.2, 0.1};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(uses[i].sequences, static_cast<std::int64_t>(firsts[i].size()));
      EXPECT_LT(std::abs(static_cast<double>(uses[i].sequences) -
                         weights[i] * static_cast<double>(p + 1)),
                1 + 1e-9);
    }
  }
  const std::vector<PartUse> uses = UseBefore(data, 120);
  EXPECT_EQ(uses[0].tokens, 84 * 4);
  EXPECT_EQ(uses[1].passes, 12.0);  // 24 draws of 2 sequences
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = static_cast<std::ptrdiff_t>(data.parts[i].num_sequences);
    ASSERT_LE(2 * n, static_cast<std::ptrdiff_t>(firsts[i].size()));
    const std::set<std::int32_t> one(firsts[i].begin(), firsts[i].begin() + n);
    EXPECT_EQ(one.size(), static_cast<std::size_t>(n)) << "every sequence once in a pass";
    EXPECT_EQ(one, std::set(firsts[i].begin() + n, firsts[i].begin() + 2 * n));
  }
}

// However a step is cut for ranks and micro-batches, and wherever one starts to read.
TEST_F(MixtureTest, EveryWorldSizeDrawsTheSameSequences) {
  const DataSet data = OpenData(Mixture({3, 1, 2})).value();
  constexpr std::int64_t kBatch = 29;
  for (const std::int64_t begin : {0, 29, 1'000'003}) {
    std::vector<std::int32_t> whole;
    for (std::int64_t p = begin; p < begin + kBatch; ++p) {
      for (const std::int32_t token : ReadOne(*data.train, p)) whole.push_back(token);
    }
    for (const std::int64_t world : {1, 2, 3, 4, 7}) {
      std::vector<std::int32_t> joined;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const std::int64_t first = begin + kBatch * rank / world;
        const std::int64_t last = begin + kBatch * (rank + 1) / world;
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(4 * (last - first)));
        std::vector<std::int32_t> targets(tokens.size());
        ASSERT_TRUE(data.train->Read(first, tokens, targets).ok());
        joined.insert(joined.end(), tokens.begin(), tokens.end());
      }
      EXPECT_EQ(joined, whole) << world << " ranks from " << begin;
    }
  }
}

TEST_F(MixtureTest, ValidationIsTheEndOfEachDrawnByWeightWithoutRepeats) {
  DataOptions options = Mixture({1, 1, 2});
  options.mixture[1].path = WriteTokens("b.bin", {30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41});
  options.validation_fraction = 0.5;
  const DataSet data = OpenData(options).value();
  // c's half is 12 tokens, 2 sequences, and comes every other time: the fifth draw would repeat it.
  ASSERT_EQ(data.validation->num_sequences(), 4);
  std::set<std::int32_t> seen;
  for (std::int64_t p = 0; p < 4; ++p) seen.insert(ReadOne(*data.validation, p)[0]);
  EXPECT_THAT(seen, testing::ElementsAre(13, 36, 73, 77));
  std::vector<std::int32_t> targets;
  for (std::int64_t p = 0; p < 40; ++p) {
    const std::size_t source = SourceOf(ReadOne(*data.train, p, &targets));
    EXPECT_LT(targets.back(), std::vector<int>({13, 36, 73})[source]);
  }
  // Or it is a path of its own.
  options.validation_fraction = 0;
  options.validation_path = options.mixture[0].path;
  EXPECT_EQ(OpenData(options).value().validation->num_sequences(), 6);
}

TEST_F(MixtureTest, IdentitySeesEverySourceAndItsWeight) {
  const auto fingerprint = [](const DataOptions& options) {
    return OpenData(options).value().train->identity().fingerprint;
  };
  const DataOptions options = Mixture({3, 1, 2});
  const std::uint64_t same = fingerprint(options);
  EXPECT_EQ(fingerprint(options), same);
  DataOptions named = options;
  named.mixture[0].name = "other";
  EXPECT_EQ(fingerprint(named), same);
  DataOptions heavier = options;
  heavier.mixture[1].weight = 2;
  EXPECT_NE(fingerprint(heavier), same);
  DataOptions swapped = options;
  std::swap(swapped.mixture[0].path, swapped.mixture[2].path);
  EXPECT_NE(fingerprint(swapped), same);
  EXPECT_EQ(OpenData(options).value().train->identity().size_bytes, 2 * (25 + 9 + 25));
  WriteTokens("c.bin", Counting(25));
  EXPECT_NE(fingerprint(options), same);
}

TEST_F(MixtureTest, WhatIsWrongWithASourceIsNamed) {
  const DataOptions good = Mixture({1, 1, 1});
  DataOptions options = good;
  options.mixture[2].path = directory_ + "/none";
  ExpectError(options, absl::StatusCode::kNotFound, "data.mixture[2].path: stat(");
  options.mixture[2].path = "";
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.mixture[2].path is empty");
  options = good;
  options.mixture[1].weight = std::nan("");
  ExpectError(options, absl::StatusCode::kInvalidArgument, "data.mixture[1].weight is nan");
  options = good;
  options.path = good.mixture[0].path;
  ExpectError(options, absl::StatusCode::kInvalidArgument, "exclude each other");
  // A tokenizer of 128000 ids beside one of 100.
  std::vector<std::int32_t> header(256);
  header[0] = 20240801;
  header[1] = 7;
  header[2] = 5;
  header.insert(header.end(), {1, 2, 3, 4, 5});
  options = good;
  options.mixture[1].path = Write(
      "wide.bin",
      std::string(reinterpret_cast<const char*>(header.data()), header.size() * sizeof(header[0])));
  ExpectError(options, absl::StatusCode::kInvalidArgument,
              "wide.bin has tokens of 4 bytes, " + good.mixture[0].path + " of 2");
  options.mixture[1].path = WriteTokens("foreign.bin", {1, 2, 3, 4, 100, 5});
  ExpectError(options, absl::StatusCode::kDataLoss, "data.mixture[1].path: ");
  ExpectError(options, absl::StatusCode::kDataLoss, "foreign.bin, byte 8: token id 100");
  options.mixture[1].path = WriteTokens("short.bin", Counting(4));
  ExpectError(options, absl::StatusCode::kInvalidArgument,
              "data.mixture[1].path: " + options.mixture[1].path + ": the training split has 4");
}

DataOptions Synthetic() {
  DataOptions options;
  options.sequence_length = 6;
  options.vocab_size = 10;
  options.seed = 3;
  return options;
}

TEST(SyntheticData, IsAFunctionOfSeedAndPosition) {
  const DataSet data = OpenData(Synthetic()).value();
  EXPECT_EQ(data.train->num_sequences(), 0);
  EXPECT_EQ(ReadOne(*data.train, 123456789012), ReadOne(*data.train, 123456789012));
  EXPECT_NE(ReadOne(*data.train, 5), ReadOne(*data.train, 6));
  DataOptions other = Synthetic();
  other.seed = 4;
  EXPECT_NE(ReadOne(*OpenData(other).value().train, 5), ReadOne(*data.train, 5));
}

TEST(SyntheticData, TargetsFollowOrAreIndependent) {
  DataOptions options = Synthetic();
  std::vector<std::int32_t> targets;
  const DataSet next = OpenData(options).value();
  const std::vector<std::int32_t> tokens = ReadOne(*next.train, 7, &targets);
  EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
  options.targets = TargetRule::kIndependent;
  std::vector<std::int32_t> independent;
  const DataSet drawn = OpenData(options).value();
  EXPECT_EQ(ReadOne(*drawn.train, 7, &independent), tokens);
  EXPECT_NE(independent, targets);
}

TEST(SyntheticData, IsUniformOverTheVocabulary) {
  DataOptions options = Synthetic();
  options.sequence_length = 1000;
  const DataSet data = OpenData(options).value();
  std::map<std::int32_t, int> counts;
  for (int p = 0; p < 10; ++p) {
    for (const std::int32_t token : ReadOne(*data.train, p)) ++counts[token];
  }
  ASSERT_EQ(counts.size(), 10U);
  // 10000 draws: mean 1000, sigma 30; the seed is fixed, so this cannot flake.
  for (const auto& [token, count] : counts) EXPECT_NEAR(count, 1000, 150) << token;
}

TEST_F(DataSetTest, EntropyIsOfTheSplit) {
  std::string text(1000, 'a');
  for (std::size_t i = 800; i < text.size(); ++i) text[i] = i % 2 == 0 ? 'x' : 'y';
  DataOptions options;
  options.source = SourceKind::kText;
  options.path = Write("t", text);
  options.sequence_length = 10;
  options.vocab_size = 256;
  options.validation_fraction = 0.2;
  const DataSet data = OpenData(options).value();
  EXPECT_NEAR(SplitEntropy(*data.train).value()->unigram, 0, 1e-12);
  EXPECT_NEAR(SplitEntropy(*data.validation).value()->unigram, std::log(2.0), 1e-12);
  EXPECT_NEAR(SplitEntropy(*data.validation).value()->bigram_conditional, 0, 1e-12);
  EXPECT_FALSE(SplitEntropy(*OpenData(Synthetic()).value().train).value().has_value());
}

}  // namespace
}  // namespace fsdp

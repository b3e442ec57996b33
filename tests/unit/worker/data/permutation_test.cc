#include "worker/data/permutation.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/content_hash.h"
#include "worker/data/entropy.h"
#include "worker/device/philox.h"

namespace fsdp {
namespace {

TEST(Permutation, VisitsEverythingOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1023, 1024, 1025}) {
    const Permutation permute(size, PassKey(1, 0));
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t to = permute(i);
      EXPECT_GE(to, 0);
      EXPECT_LT(to, size);
      seen.insert(to);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(size)) << size;
  }
}

TEST(Permutation, DiffersByPassAndSeed) {
  const auto order = [](std::uint64_t seed, std::int64_t pass) {
    const Permutation permute(1000, PassKey(seed, pass));
    std::vector<std::int64_t> to;
    for (std::int64_t i = 0; i < 1000; ++i) to.push_back(permute(i));
    return to;
  };
  EXPECT_EQ(order(7, 3), order(7, 3));
  EXPECT_NE(order(7, 3), order(7, 4));
  EXPECT_NE(order(7, 3), order(8, 3));
}

TEST(Permutation, WorksNearTheLargestSizes) {
  const std::int64_t size = (std::int64_t{1} << 62) - 3;
  const Permutation permute(size, 5);
  EXPECT_LT(permute(size - 1), size);
  EXPECT_NE(permute(0), permute(1));
}

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffffULL),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(ContentHash, DoesNotDependOnHowBytesAreCut) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  ContentHash whole;
  whole.Add(bytes);
  for (const std::size_t step : {1U, 3U, 31U, 32U, 33U, 500U}) {
    ContentHash pieces;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      pieces.Add(std::span(bytes).subspan(i, std::min(step, bytes.size() - i)));
    }
    EXPECT_EQ(pieces.Finish(), whole.Finish()) << step;
  }
}

TEST(ContentHash, SeesEveryFlippedBitAndEveryCut) {
  std::vector<std::byte> bytes(77);
  std::set<std::uint64_t> hashes;
  ContentHash original;
  original.Add(bytes);
  hashes.insert(original.Finish());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ContentHash hash;
    hash.Add(bytes);
    hashes.insert(hash.Finish());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ContentHash hash;
    hash.Add(std::span(bytes).first(size));
    hashes.insert(hash.Finish());
  }
  EXPECT_EQ(hashes.size(), 1 + bytes.size() * 8 + bytes.size());
}

TEST(Entropy, OfAFairAlternationIsKnown) {
  // a b a b ...: one bit of unigram entropy, nothing left once the current token is known.
  std::vector<std::uint32_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.push_back(static_cast<std::uint32_t>(i % 2));
  const EntropyStats stats = ComputeEntropy(tokens);
  EXPECT_NEAR(stats.unigram, 0.69314718056, 1e-9);
  EXPECT_NEAR(stats.bigram_conditional, 0, 1e-12);
}

TEST(Entropy, OfADeBruijnSequenceIsLogOfItsAlphabet) {
  // Over {0,1,2}, every ordered pair once; closed by repeating the first token.
  const std::vector<std::uint32_t> tokens = {0, 0, 1, 0, 2, 1, 1, 2, 2, 0};
  EXPECT_NEAR(ComputeEntropy(tokens).bigram_conditional, 1.09861228867, 1e-9);
}

TEST(Entropy, SmallAndLargeVocabulariesAgree) {
  std::vector<std::uint32_t> small;
  std::vector<std::uint32_t> large;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::uint32_t token = (i * i + i / 7) % 11;
    small.push_back(token);
    large.push_back(token * 5000);
  }
  const EntropyStats a = ComputeEntropy(small);
  const EntropyStats b = ComputeEntropy(large);
  EXPECT_NEAR(a.unigram, b.unigram, 1e-12);
  EXPECT_NEAR(a.bigram_conditional, b.bigram_conditional, 1e-12);
  EXPECT_GT(a.unigram, a.bigram_conditional);
}

TEST(Entropy, OfNothingIsZero) {
  EXPECT_EQ(ComputeEntropy({}).unigram, 0);
  const std::uint32_t one = 7;
  EXPECT_EQ(ComputeEntropy({&one, 1}).bigram_conditional, 0);
}

}  // namespace
}  // namespace fsdp

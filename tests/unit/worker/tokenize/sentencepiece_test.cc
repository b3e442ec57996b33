#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/tokenize/sentencepiece_support.h"
#include "worker/tokenize/tokenizer.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Sentences() {
  std::vector<std::string> sentences;
  for (int i = 0; i < 200; ++i) {
    sentences.push_back("the cat sat on the mat number " + std::to_string(i % 17));
    sentences.push_back("a tokenizer cuts words into pieces of words");
  }
  return sentences;
}

TEST(SentencePieceTest, UnigramAndBpeModels) {
  const TemporaryFolder folder;
  for (const char* type : {"unigram", "bpe"}) {
    const std::string model = TrainSentencePiece(Sentences(), type, 320);
    ASSERT_FALSE(model.empty()) << type;
    folder.Write("tokenizer.model", model);
    const auto loaded = LoadTokenizer(folder.Path(""), {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->kind, "SentencePiece");
    const Tokenizer& tokenizer = *loaded->tokenizer;
    EXPECT_GT(tokenizer.vocab_size(), 256);
    EXPECT_FALSE(tokenizer.cuts_before_newlines());
    ASSERT_TRUE(tokenizer.end_of_text().has_value());
    EXPECT_EQ(tokenizer.Find("</s>"), tokenizer.end_of_text());
    EXPECT_EQ(tokenizer.Find("no such piece"), std::nullopt);
    // In the trainer's words, and by bytes in others.
    for (const std::string text : {"the cat sat on words", "中 é 😀"}) {
      std::vector<TokenId> ids;
      ASSERT_TRUE(tokenizer.NewEncoder()->Encode(text, true, &ids).ok());
      EXPECT_EQ(DecodeSentencePiece(model, ids), text);
      for (const TokenId id : ids) EXPECT_LT(id, tokenizer.vocab_size());
    }
    std::vector<TokenId> few;
    ASSERT_TRUE(tokenizer.NewEncoder()->Encode("the cat", true, &few).ok());
    EXPECT_LT(few.size(), std::string("the cat").size()) << type;
  }
}

TEST(SentencePieceTest, WhatIsNoModelIsRefused) {
  const TemporaryFolder folder;
  const auto loaded = LoadTokenizer(folder.Write("t.model", "\x7f not a model"), {});
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("t.model"));
  EXPECT_FALSE(LoadTokenizer(folder.Write("empty.model", ""), {}).ok());
}

}  // namespace
}  // namespace fsdp

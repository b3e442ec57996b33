#include "worker/data/read_ahead.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using testing::Each;
using testing::ElementsAre;

// Sequences of two tokens, both their position. Reads wait at a gate, and can fail.
class GatedSource final : public BatchSource {
 public:
  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets,
                    std::span<std::int32_t> /*document_begins*/) override {
    std::unique_lock<std::mutex> lock(mutex_);
    asked_.push_back(position);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || allowed_.contains(position); });
    if (broken_ == position) return absl::DataLossError("the file changed");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(position + static_cast<std::int64_t>(i) / 2);
      targets[i] = -tokens[i];
    }
    return absl::OkStatus();
  }
  [[nodiscard]] std::int64_t sequence_length() const override { return 2; }
  [[nodiscard]] std::int64_t num_sequences() const override { return 100; }
  [[nodiscard]] std::int64_t vocab_size() const override { return 200; }
  [[nodiscard]] const DataIdentity& identity() const override { return identity_; }

  void Allow(std::int64_t position) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_.insert(position);
    changed_.notify_all();
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Break(std::int64_t position) { broken_ = position; }
  // Waits until as many reads were asked for; their positions.
  std::vector<std::int64_t> Asked(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= count; });
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::int64_t> allowed_;
  std::vector<std::int64_t> asked_;
  bool open_ = false;
  std::int64_t broken_ = -1;
  DataIdentity identity_;
};

TEST(ReadAheadTest, TheNextBatchIsReadWhileTheOneTakenIsInUse) {
  GatedSource source;
  source.Allow(0);
  ReadAhead data(source, 2);
  ASSERT_TRUE(data.Take(0, 10).ok());
  // Asked for without another Take; it waits at the gate, and what was taken is untouched.
  EXPECT_THAT(source.Asked(2), ElementsAre(0, 10));
  EXPECT_THAT(data.tokens(), ElementsAre(0, 0, 1, 1));
  source.Allow(10);
  ASSERT_TRUE(data.Take(10, std::nullopt).ok());
  EXPECT_THAT(data.tokens(), ElementsAre(10, 10, 11, 11));
  EXPECT_THAT(data.targets(), ElementsAre(-10, -10, -11, -11));
  EXPECT_THAT(source.Asked(2), ElementsAre(0, 10)) << "each batch is read once";
}

TEST(ReadAheadTest, WhatIsTakenOutOfOrderIsReadThen) {
  GatedSource source;
  source.Open();
  ReadAhead data(source, 1);
  ASSERT_TRUE(data.Take(0, 1).ok());
  ASSERT_TRUE(data.Take(50, 51).ok());
  EXPECT_THAT(data.tokens(), Each(50));
  ASSERT_TRUE(data.Take(51, std::nullopt).ok());
  EXPECT_THAT(data.tokens(), Each(51));
  EXPECT_THAT(source.Asked(4), ElementsAre(0, 1, 50, 51));
}

TEST(ReadAheadTest, AnErrorIsThatOfTheBatchItBelongsTo) {
  GatedSource source;
  source.Open();
  source.Break(7);
  ReadAhead data(source, 1);
  ASSERT_TRUE(data.Take(6, 7).ok());
  EXPECT_THAT(data.tokens(), Each(6));
  EXPECT_TRUE(absl::IsDataLoss(data.Take(7, 8)));
  // One that nobody takes is nobody's.
  ASSERT_TRUE(data.Take(6, 7).ok());
  source.Asked(4);
  ASSERT_TRUE(data.Take(9, std::nullopt).ok());
  EXPECT_THAT(data.tokens(), Each(9));
}

TEST(ReadAheadTest, ARankWithoutSequencesTakesEmptyBatches) {
  GatedSource source;
  source.Open();
  ReadAhead data(source, 0);
  ASSERT_TRUE(data.Take(0, 4).ok());
  ASSERT_TRUE(data.Take(4, std::nullopt).ok());
  EXPECT_TRUE(data.tokens().empty());
}

}  // namespace
}  // namespace fsdp

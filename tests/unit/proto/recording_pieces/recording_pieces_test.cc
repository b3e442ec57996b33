#include "proto/support/recording_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

v1::RankProfile Piece(int number) {
  v1::RankProfile piece;
  if (number == 1) {
    piece.add_strings("");
    piece.add_notes("first");
  }
  piece.add_strings("name" + std::to_string(number));
  // Each later in the step than the one of the piece after it.
  piece.add_spans()->set_begin_ns(100 - number);
  piece.mutable_spans(0)->set_name(static_cast<std::uint32_t>(number));
  piece.add_steps()->set_step(number);
  piece.add_families()->set_family("f" + std::to_string(number));
  piece.set_last_step(number);
  v1::ProfileCounter& counter = *piece.add_counters();
  counter.set_name("memory");
  counter.add_time_ns(number);
  counter.add_values(number);
  return piece;
}

TEST(RecordingPieces, GoOnWhereTheOnesBeforeEnded) {
  std::string bytes;
  for (const int number : {1, 2, 3}) bytes += RecordingPiece(Piece(number));
  const auto recording = JoinRecordingPieces(bytes);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_THAT(recording->strings(), ::testing::ElementsAre("", "name1", "name2", "name3"));
  EXPECT_EQ(recording->steps_size(), 3);
  EXPECT_EQ(recording->last_step(), 3);
  EXPECT_THAT(recording->notes(), ::testing::ElementsAre("first"));
  // The newest totals.
  ASSERT_EQ(recording->families_size(), 1);
  EXPECT_EQ(recording->families(0).family(), "f3");
  ASSERT_EQ(recording->counters_size(), 1);
  EXPECT_THAT(recording->counters(0).values(), ::testing::ElementsAre(1, 2, 3));
  // In order, with the names that they had.
  ASSERT_EQ(recording->spans_size(), 3);
  EXPECT_EQ(recording->spans(0).begin_ns(), 97);
  EXPECT_EQ(recording->spans(0).name(), 3U);
}

TEST(RecordingPieces, ATornEndIsLeftOut) {
  const std::string first = RecordingPiece(Piece(1));
  const std::string bytes = first + RecordingPiece(Piece(2));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto recording = JoinRecordingPieces(std::string_view(bytes).substr(0, size));
    ASSERT_EQ(recording.ok(), size >= first.size()) << size;
    if (!recording.ok()) continue;
    EXPECT_EQ(recording->last_step(), 1) << size;
  }
  EXPECT_EQ(JoinRecordingPieces("\xff\xff\xff\xff garbage").status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace fsdp

// What the ranks' flight recorders say together.

#include "coordinator/profile/collective_compare.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Add(v1::CollectiveDump* dump, std::int64_t sequence, const std::string& operation,
         const std::string& unit, v1::CollectiveState state, std::int64_t bytes = 4096) {
  v1::CollectiveRecord& record = *dump->add_records();
  record.set_sequence(sequence);
  record.set_operation(operation);
  record.set_unit(unit);
  record.set_communicator(operation == "all_gather" ? "gather" : "scatter");
  record.set_bytes(bytes);
  record.set_dtype("f32");
  record.set_state(state);
}

// `ranks` ranks that have finished `count` gathers from `first` on.
std::map<int, v1::CollectiveDump> Finished(int ranks, int count, std::int64_t first = 1) {
  std::map<int, v1::CollectiveDump> dumps;
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t i = first; i < first + count; ++i) {
      Add(&dumps[rank], i, "all_gather", "layers." + std::to_string(i),
          v1::COLLECTIVE_STATE_FINISHED);
    }
  }
  return dumps;
}

TEST(CompareCollectives, ARankThatHasNotComeIsNamedWithWhatTheOthersWaitIn) {
  auto dumps = Finished(4, 3);
  for (const int rank : {0, 1, 3}) {
    Add(&dumps[rank], 4, "all_gather", "layers.4", v1::COLLECTIVE_STATE_STARTED);
  }
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
  EXPECT_EQ(verdict.collective, "all_gather layers.4, sequence 4");
  EXPECT_EQ(verdict.message,
            "rank 2 has not come to all_gather layers.4, sequence 4, which ranks 0, 1 and 3 wait "
            "in; the last that rank 2 came to is all_gather layers.3, sequence 3");
}

TEST(CompareCollectives, WhatIsOnlyQueuedHasNotCome) {
  auto dumps = Finished(2, 1);
  Add(&dumps[0], 2, "reduce_scatter", "head", v1::COLLECTIVE_STATE_STARTED);
  Add(&dumps[1], 2, "reduce_scatter", "head", v1::COLLECTIVE_STATE_ENQUEUED);
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.message, HasSubstr("rank 0 waits in"));
}

TEST(CompareCollectives, TheFirstPlaceWhereRanksPartCountsNotTheLast) {
  auto dumps = Finished(3, 2);
  // Rank 1 did something else at 3; all that follows is a consequence.
  for (const int rank : {0, 2}) {
    Add(&dumps[rank], 3, "all_gather", "layers.3", v1::COLLECTIVE_STATE_STARTED);
  }
  Add(&dumps[1], 3, "reduce_scatter", "layers.1", v1::COLLECTIVE_STATE_STARTED, 64);
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.message,
              HasSubstr("rank 1 issued reduce_scatter layers.1 (64 bytes of f32) as sequence 3 "
                        "where ranks 0 and 2 issued all_gather layers.3 (4096 bytes of f32)"));
}

TEST(CompareCollectives, OneOfTwoRanksThatDifferIsNotCalledTheCulpritTwice) {
  auto dumps = Finished(2, 1);
  Add(&dumps[0], 2, "all_gather", "a", v1::COLLECTIVE_STATE_STARTED);
  Add(&dumps[1], 2, "all_gather", "b", v1::COLLECTIVE_STATE_STARTED);
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  ASSERT_EQ(verdict.ranks.size(), 1U);
  EXPECT_THAT(verdict.message, HasSubstr("all_gather a"));
  EXPECT_THAT(verdict.message, HasSubstr("all_gather b"));
}

TEST(CompareCollectives, AStuckRankWithoutADumpIsToBlameForWhatOthersWaitIn) {
  auto dumps = Finished(3, 2);
  dumps.erase(1);
  for (auto& [rank, dump] : dumps) {
    Add(&dump, 3, "all_reduce", "step_stats", v1::COLLECTIVE_STATE_STARTED);
  }
  const CollectiveVerdict verdict = CompareCollectives(dumps, {{1, "its process is stopped"}});
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.message,
              HasSubstr("ranks 0 and 2 wait in all_reduce step_stats, sequence 3; rank 1 told "
                        "nothing: its process is stopped"));
}

TEST(CompareCollectives, AllInOneCollectiveIsTheNetworks) {
  auto dumps = Finished(2, 1);
  for (auto& [rank, dump] : dumps) {
    Add(&dump, 2, "all_gather", "embed", v1::COLLECTIVE_STATE_STARTED);
  }
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_THAT(verdict.message, HasSubstr("all ranks are in all_gather embed, sequence 2"));
  EXPECT_THAT(verdict.message, HasSubstr("network"));
}

TEST(CompareCollectives, ARankThatIsLeftBehindInWhatOthersFinished) {
  auto dumps = Finished(3, 1);
  Add(&dumps[0], 2, "all_gather", "embed", v1::COLLECTIVE_STATE_FINISHED);
  Add(&dumps[1], 2, "all_gather", "embed", v1::COLLECTIVE_STATE_STARTED);
  Add(&dumps[2], 2, "all_gather", "embed", v1::COLLECTIVE_STATE_FINISHED);
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.message, HasSubstr("which ranks 0 and 2 finished"));
}

TEST(CompareCollectives, RingsThatReachBackUnequallyFarAreComparedWhereTheyOverlap) {
  std::map<int, v1::CollectiveDump> dumps = Finished(2, 5, 100);
  dumps[1].mutable_records()->DeleteSubrange(0, 3);
  const CollectiveVerdict verdict = CompareCollectives(dumps, {});
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_THAT(verdict.message, HasSubstr("have finished the same 104 collectives"));
}

TEST(CompareCollectives, NothingToCompare) {
  EXPECT_THAT(CompareCollectives({}, {{0, "gone"}}).message,
              HasSubstr("no rank told its collectives; rank 0 told nothing: gone"));
  EXPECT_THAT(CompareCollectives({{0, {}}}, {}).message, HasSubstr("have finished the same 0"));
}

}  // namespace
}  // namespace fsdp::coordinator

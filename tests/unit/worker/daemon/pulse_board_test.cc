#include "worker/daemon/pulse_board.h"

#include "gtest/gtest.h"
#include "tests/fakes/fake_clock.h"

namespace fsdp::daemon {
namespace {

v1::RunningRank RankOf(std::int64_t epoch) {
  v1::RunningRank rank;
  rank.mutable_key()->set_job("jobs/a");
  rank.mutable_key()->set_epoch(epoch);
  rank.set_state(v1::RANK_STATE_STARTING);
  rank.set_pid(7);
  return rank;
}

class PulseBoardTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  PulseBoard board_{clock_};
};

TEST_F(PulseBoardTest, WithoutARankThereIsNoPulse) {
  EXPECT_FALSE(board_.pulse());
  EXPECT_FALSE(board_.running());
  board_.SetPulse({});
  board_.SetState(v1::RANK_STATE_RUNNING);
  EXPECT_FALSE(board_.pulse());
}

TEST_F(PulseBoardTest, KeyAndStateAreTheDaemonsAndTheRestIsTheTrainers) {
  board_.Begin(RankOf(3));
  board_.SetState(v1::RANK_STATE_RUNNING);
  v1::RankPulse pulse;
  pulse.mutable_key()->set_epoch(99);
  pulse.set_state(v1::RANK_STATE_LOST);
  pulse.set_step(5);
  pulse.set_collective_started(11);
  board_.SetPulse(pulse);
  EXPECT_EQ(board_.pulse()->key().epoch(), 3);
  EXPECT_EQ(board_.pulse()->state(), v1::RANK_STATE_RUNNING);
  EXPECT_EQ(board_.pulse()->collective_started(), 11);
  EXPECT_EQ(board_.running()->step(), 5);
  EXPECT_EQ(board_.running()->pid(), 7);
}

TEST_F(PulseBoardTest, StepsOnlyGrow) {
  board_.Begin(RankOf(1));
  board_.SetStep(8);
  v1::RankPulse pulse;
  pulse.set_step(7);  // Sent before the step's report, and overtaken by it.
  board_.SetPulse(pulse);
  EXPECT_EQ(board_.pulse()->step(), 8);
}

TEST_F(PulseBoardTest, APendingCollectiveAgesAndAFinishedOneDoesNot) {
  board_.Begin(RankOf(1));
  v1::RankPulse pulse;
  pulse.set_collective("all_gather");
  pulse.set_collective_pending_seconds(1);
  board_.SetPulse(pulse);
  clock_.Advance(absl::Seconds(6));
  EXPECT_DOUBLE_EQ(board_.pulse()->collective_pending_seconds(), 7);
  pulse.clear_collective();
  pulse.clear_collective_pending_seconds();
  board_.SetPulse(pulse);
  clock_.Advance(absl::Seconds(6));
  EXPECT_DOUBLE_EQ(board_.pulse()->collective_pending_seconds(), 0);
}

TEST_F(PulseBoardTest, ANewRankForgetsTheOld) {
  board_.Begin(RankOf(1));
  board_.SetStep(8);
  board_.Begin(RankOf(2));
  EXPECT_EQ(board_.pulse()->step(), 0);
  board_.End();
  EXPECT_FALSE(board_.pulse());
}

}  // namespace
}  // namespace fsdp::daemon

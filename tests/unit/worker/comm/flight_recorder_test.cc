#include "worker/profile/flight_recorder.h"

#include <memory>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/comm/in_process.h"
#include "worker/comm/recording_communicator.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {
namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] MonotonicTime Now() const override { return now_; }
  [[nodiscard]] absl::Time WallNow() const override { return absl::UnixEpoch(); }
  void Advance(double seconds) { now_ = now_ + absl::Seconds(seconds); }

 private:
  MonotonicTime now_;
};

TEST(FlightRecorder, NamesTheOldestPendingAndItsMedian) {
  ManualClock clock;
  FlightRecorder recorder(clock);
  for (const double seconds : {1.0, 3.0, 2.0}) {
    const std::int64_t sequence = recorder.Enqueue("all_gather", "layers.0", "gather", 8, "f32");
    recorder.Start(sequence);
    clock.Advance(seconds);
    recorder.Finish(sequence, true);
  }
  const std::int64_t gather = recorder.Enqueue("all_gather", "layers.3", "gather", 8, "f32");
  recorder.Start(gather);
  clock.Advance(4);
  const std::int64_t scatter = recorder.Enqueue("reduce_scatter", "head", "scatter", 8, "f32");
  recorder.Start(scatter);
  clock.Advance(0.5);

  const CollectiveStatus status = recorder.Status();
  EXPECT_EQ(status.pending, "all_gather layers.3");
  EXPECT_EQ(status.pending_sequence, 4);
  EXPECT_EQ(recorder.Culprit(), "all_gather layers.3, sequence 4");
  EXPECT_DOUBLE_EQ(status.pending_seconds, 4.5);
  EXPECT_DOUBLE_EQ(status.median_seconds, 2.0);
  EXPECT_EQ(status.last_started, 5);
  EXPECT_EQ(status.last_finished, 3);
}

// Seen with a peer that was stopped in mid-step: nobody seemed to wait, since a later scatter had
// finished beside the pending gather, and the hang rule took ten times as long and named nothing.
TEST(FlightRecorder, ALaterCollectiveOfAnotherCommunicatorHidesNoPendingOne) {
  ManualClock clock;
  FlightRecorder recorder(clock);
  const std::int64_t gather = recorder.Enqueue("all_gather", "embed", "gather", 8, "f32");
  const std::int64_t scatter = recorder.Enqueue("reduce_scatter", "embed", "scatter", 8, "f32");
  recorder.Start(gather);
  recorder.Start(scatter);
  recorder.Finish(scatter, true);
  EXPECT_EQ(recorder.Status().pending, "all_gather embed");
  EXPECT_LT(recorder.Status().last_finished, recorder.Status().last_started);
  recorder.Finish(gather, true);
  EXPECT_EQ(recorder.Status().pending, "");
  EXPECT_EQ(recorder.Status().last_finished, recorder.Status().last_started);
}

TEST(FlightRecorder, WhatWaitsInAQueueIsNotPending) {
  ManualClock clock;
  FlightRecorder recorder(clock);
  recorder.Enqueue("all_reduce", "", "gather", 32, "f64");
  clock.Advance(100);
  EXPECT_EQ(recorder.Status().pending, "");
}

TEST(FlightRecorder, KeepsTheNewestAndForgetsTheRest) {
  ManualClock clock;
  FlightRecorder recorder(clock, 3);
  for (int i = 0; i < 5; ++i) recorder.Enqueue("barrier", "", "gather", 0, "f32");
  recorder.Start(1);  // overwritten: no effect but the count
  const std::vector<CollectiveEntry> entries = recorder.Snapshot();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries.front().sequence, 3);
  EXPECT_EQ(entries.back().sequence, 5);
  for (const CollectiveEntry& entry : entries) {
    EXPECT_EQ(entry.phase, CollectivePhase::kEnqueued);
  }
}

TEST(RecordingCommunicator, RecordsEachCollectiveWithItsLabel) {
  FlightRecorder recorder(Clock::Real());
  auto group = CreateInProcessGroup(1).value();
  RecordingCommunicator comm(*group[0], recorder, "gather");
  CpuStream stream("test", CpuStream::Mode::kThread);
  float shard[3] = {1, 2, 3};
  float unit[3] = {};
  comm.SetLabel("layers.7");
  ASSERT_TRUE(comm.AllGather({shard, DType::kF32, 3}, {unit, DType::kF32, 3}, stream).ok());
  comm.SetLabel("");
  ASSERT_TRUE(comm.Barrier(stream).ok());
  ASSERT_TRUE(stream.Synchronize().ok());
  const std::vector<CollectiveEntry> entries = recorder.Snapshot();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(DescribeCollective(entries[0]), "all_gather layers.7, sequence 1");
  EXPECT_EQ(entries[0].bytes, 12);
  EXPECT_EQ(entries[0].phase, CollectivePhase::kFinished);
  EXPECT_EQ(DescribeCollective(entries[1]), "barrier, sequence 2");
  EXPECT_EQ(unit[2], 3.0F);
}

TEST(RecordingCommunicator, AFailedCollectiveIsNotFinished) {
  FlightRecorder recorder(Clock::Real());
  auto group = CreateInProcessGroup(2).value();
  RecordingCommunicator comm(*group[0], recorder, "gather");
  group[1].reset();
  CpuStream stream("test", CpuStream::Mode::kThread);
  ASSERT_TRUE(comm.Barrier(stream).ok());
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(recorder.Snapshot().size(), 1U);
  EXPECT_EQ(recorder.Snapshot()[0].phase, CollectivePhase::kFailed);
  EXPECT_EQ(recorder.Status().last_finished, 0);
  EXPECT_EQ(recorder.Status().pending, "");
  EXPECT_EQ(recorder.Culprit(), "barrier, sequence 1");
}

}  // namespace
}  // namespace fsdp

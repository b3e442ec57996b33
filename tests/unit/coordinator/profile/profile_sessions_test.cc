// Profiles as the coordinator follows them, and who waits for ranks' collectives.

#include "coordinator/profile/profile_sessions.h"

#include <memory>
#include <string>
#include <vector>

#include "coordinator/lifecycle/straggler.h"
#include "coordinator/profile/dump_requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/recording_sink.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class ProfileSessionsTest : public ::testing::Test {
 protected:
  RecordingSink& Connect(const std::string& name) {
    v1::WorkerHello hello;
    hello.set_worker(name);
    hello.set_incarnation("1");
    auto sink = std::make_shared<RecordingSink>();
    workers_.Accept(hello, sink, {.mono = Ns(0), .wall = absl::UnixEpoch()});
    return *sink;
  }
  static MonotonicTime Ns(std::int64_t ns) {
    return MonotonicTime::FromSinceStart(absl::Seconds(100) + absl::Nanoseconds(ns));
  }
  static v1::EpochKey Key(int rank) {
    v1::EpochKey key;
    key.set_job("jobs/j");
    key.set_epoch(7);
    key.set_rank(rank);
    return key;
  }
  // Rank r runs on the r-th of `names`.
  absl::StatusOr<const ProfileSessions::Session*> Start(const std::string& profile,
                                                        const std::vector<std::string>& names) {
    std::vector<ProfileSessions::Rank> ranks;
    for (std::size_t i = 0; i < names.size(); ++i) {
      ProfileSessions::Rank& rank = ranks.emplace_back();
      rank.key = Key(static_cast<int>(i));
      rank.worker = WorkerId(names[i]);
      rank.incarnation = "1";
    }
    v1::ProfileOptions options;
    options.set_steps(3);
    return sessions_.Start(workers_, JobId("j"), profile, options, std::move(ranks), Ns(0));
  }
  void Update(const std::string& worker, int rank, v1::ProfileState state,
              const std::string& profile = "p") {
    v1::ProfileUpdate update;
    *update.mutable_key() = Key(rank);
    update.set_profile(profile);
    update.set_state(state);
    update.set_steps(2);
    update.set_size_bytes(77);
    sessions_.OnUpdate(workers_, WorkerId(worker), update, Ns(0));
  }
  // The worker's clock is `ahead` of ours, the way there takes `there` and the way back `back`.
  void AnswerProbe(const std::string& worker, std::int64_t sent, std::int64_t ahead,
                   std::int64_t there, std::int64_t back) {
    const std::int64_t base = absl::ToInt64Nanoseconds(Ns(sent).since_start());
    v1::ClockAnswer answer;
    answer.set_sent_ns(base);
    answer.set_received_ns(base + there + ahead);
    answer.set_answered_ns(base + there + 50 + ahead);
    sessions_.OnClock(workers_, WorkerId(worker), answer, Ns(sent + there + 50 + back));
  }
  const v1::RankProfileStatus& Status(int rank, const std::string& profile = "p") {
    return sessions_.Find(JobId("j"), profile)->Find(rank)->status;
  }

  WorkerRegistry workers_;
  ProfileSessions sessions_;
};

TEST_F(ProfileSessionsTest, AsksEveryWorkerAndFollowsItsRanks) {
  RecordingSink& a = Connect("a");
  Connect("b");
  ASSERT_TRUE(Start("p", {"a", "b"}).ok());
  ASSERT_EQ(a.sent.size(), 2U);
  EXPECT_EQ(a.sent[0].start_profile().profile(), "p");
  EXPECT_EQ(a.sent[0].start_profile().options().steps(), 3);
  EXPECT_TRUE(a.sent[1].has_clock_probe());
  EXPECT_EQ(Status(1).state(), v1::PROFILE_STATE_WAITING);
  Update("a", 0, v1::PROFILE_STATE_RECORDING);
  EXPECT_EQ(Status(0).steps(), 2);
  // Not of this worker's rank.
  Update("a", 1, v1::PROFILE_STATE_DONE);
  EXPECT_EQ(Status(1).state(), v1::PROFILE_STATE_WAITING);
  Update("a", 0, v1::PROFILE_STATE_DONE);
  // What comes late changes nothing.
  Update("a", 0, v1::PROFILE_STATE_RECORDING);
  EXPECT_EQ(Status(0).state(), v1::PROFILE_STATE_DONE);
  EXPECT_EQ(Status(0).size_bytes(), 77);
  EXPECT_FALSE(sessions_.Find(JobId("j"), "p")->finished());
  Update("b", 1, v1::PROFILE_STATE_FAILED);
  EXPECT_TRUE(sessions_.Find(JobId("j"), "p")->finished());
}

TEST_F(ProfileSessionsTest, OneProfileOfAJobAtATimeAndTheLastEightAreKept) {
  Connect("a");
  // One that no rank has begun gives way.
  ASSERT_TRUE(Start("o", {"a"}).ok());
  ASSERT_TRUE(Start("p", {"a"}).ok());
  EXPECT_EQ(Status(0, "o").state(), v1::PROFILE_STATE_FAILED);
  EXPECT_THAT(Status(0, "o").message(), HasSubstr("another profile was asked for"));
  Update("a", 0, v1::PROFILE_STATE_RECORDING);
  const auto second = Start("q", {"a"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("profile p of the job"));
  Update("a", 0, v1::PROFILE_STATE_DONE);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "r" + std::to_string(i);
    ASSERT_TRUE(Start(name, {"a"}).ok());
    Update("a", 0, v1::PROFILE_STATE_DONE, name);
  }
  EXPECT_EQ(sessions_.Find(JobId("j"), "p"), nullptr);
  EXPECT_NE(sessions_.Find(JobId("j"), "r0"), nullptr);
  sessions_.Forget(JobId("j"));
  EXPECT_EQ(sessions_.Find(JobId("j"), "r7"), nullptr);
}

TEST_F(ProfileSessionsTest, AWorkerThatIsAwayFailsItsRankAtOnce) {
  ASSERT_TRUE(Start("p", {"nobody"}).ok());
  EXPECT_EQ(Status(0).state(), v1::PROFILE_STATE_FAILED);
  EXPECT_THAT(Status(0).message(), HasSubstr("not connected"));
}

TEST_F(ProfileSessionsTest, RanksThatEndedFailAndOthersGoOn) {
  Connect("a");
  Connect("b");
  ASSERT_TRUE(Start("p", {"a", "b"}).ok());
  sessions_.FailLost([](const ProfileSessions::Rank& rank) { return rank.key.rank() == 0; });
  EXPECT_EQ(Status(0).state(), v1::PROFILE_STATE_WAITING);
  EXPECT_EQ(Status(1).state(), v1::PROFILE_STATE_FAILED);
}

TEST_F(ProfileSessionsTest, TheOffsetIsThatOfTheShortestRoundTripWithinItsHalf) {
  RecordingSink& sink = Connect("a");
  ASSERT_TRUE(Start("p", {"a"}).ok());
  // The way back is slow: the offset is off by at most half of the round trip.
  AnswerProbe("a", 0, 1'000'000, 100, 900);
  EXPECT_EQ(Status(0).clock().uncertainty_ns(), 501);
  EXPECT_NEAR(static_cast<double>(Status(0).clock().offset_ns()), -1'000'000, 501);
  // A better probe replaces it, a worse one does not.
  AnswerProbe("a", 5000, 1'000'000, 40, 40);
  EXPECT_EQ(Status(0).clock().uncertainty_ns(), 41);
  EXPECT_EQ(Status(0).clock().offset_ns(), -1'000'000);
  AnswerProbe("a", 9000, 1'000'000, 4000, 100);
  EXPECT_EQ(Status(0).clock().offset_ns(), -1'000'000);
  // Each answer asks for the next, up to eight, and eight more at the end.
  for (int i = 0; i < 20; ++i) AnswerProbe("a", 10000 + i, 0, 5000, 5000);
  const auto probes = [&] {
    return std::count_if(sink.sent.begin(), sink.sent.end(),
                         [](const auto& message) { return message.has_clock_probe(); });
  };
  EXPECT_EQ(probes(), 8);
  Update("a", 0, v1::PROFILE_STATE_DONE);
  for (int i = 0; i < 20; ++i) AnswerProbe("a", 20000 + i, 0, 5000, 5000);
  EXPECT_EQ(probes(), 16);
  // An answer that cannot be is no measurement.
  AnswerProbe("a", 30000, 0, -20000, -20000);
  EXPECT_EQ(Status(0).clock().uncertainty_ns(), 41);
}

class DumpRequestsTest : public ProfileSessionsTest {
 protected:
  void Ask(const std::vector<std::string>& names, double pending_seconds = 5) {
    std::vector<DumpRequests::Rank> ranks;
    for (std::size_t i = 0; i < names.size(); ++i) {
      DumpRequests::Rank& rank = ranks.emplace_back();
      rank.key = Key(static_cast<int>(i));
      rank.worker = WorkerId(names[i]);
    }
    dumps_.Ask(workers_, std::move(ranks), pending_seconds, Ns(0),
               [this](absl::StatusOr<v1::DumpCollectivesResponse> answer) {
                 answers_.push_back(std::move(answer));
               });
  }
  static v1::CollectiveDump Dump(v1::CollectiveState state) {
    v1::CollectiveDump dump;
    v1::CollectiveRecord& record = *dump.add_records();
    record.set_sequence(1);
    record.set_operation("all_gather");
    record.set_state(state);
    return dump;
  }

  DumpRequests dumps_;
  std::vector<absl::StatusOr<v1::DumpCollectivesResponse>> answers_;
};

TEST_F(DumpRequestsTest, AnswersOnceEveryRankHas) {
  RecordingSink& sink = Connect("a");
  Connect("b");
  Ask({"a", "b"});
  ASSERT_EQ(sink.sent.size(), 1U);
  EXPECT_EQ(sink.sent[0].dump_diagnostics().key().rank(), 0);
  dumps_.OnDump(Key(0), Dump(v1::COLLECTIVE_STATE_STARTED));
  // Of an older epoch.
  v1::EpochKey stale = Key(1);
  stale.set_epoch(6);
  dumps_.OnDump(stale, Dump(v1::COLLECTIVE_STATE_STARTED));
  EXPECT_TRUE(answers_.empty());
  dumps_.OnSilent(Key(1), "its process is stopped");
  ASSERT_EQ(answers_.size(), 1U);
  ASSERT_TRUE(answers_[0].ok());
  EXPECT_THAT(answers_[0]->verdict(), HasSubstr("rank 1 told nothing: its process is stopped"));
  EXPECT_TRUE(answers_[0]->ranks(0).has_dump());
}

TEST_F(DumpRequestsTest, RanksThatMoveAreNotAccused) {
  Connect("a");
  Connect("b");
  for (const double pending_seconds : {0.2, 5.0}) {
    Ask({"a", "b"}, pending_seconds);
    dumps_.OnDump(Key(0), Dump(v1::COLLECTIVE_STATE_STARTED));
    dumps_.OnDump(Key(1), Dump(v1::COLLECTIVE_STATE_ENQUEUED));
  }
  ASSERT_EQ(answers_.size(), 2U);
  EXPECT_EQ(answers_[0]->verdict(),
            "nothing is pending for long: the ranks' newest collectives are sequence 1");
  EXPECT_THAT(answers_[1]->verdict(), HasSubstr("rank 1 has not come to"));
}

TEST_F(DumpRequestsTest, DoesNotWaitForEver) {
  Connect("a");
  Ask({"a", "away"});
  dumps_.Expire(Ns(0) + absl::Seconds(4));
  EXPECT_TRUE(answers_.empty());
  dumps_.Expire(Ns(0) + absl::Seconds(5));
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_THAT(answers_[0]->ranks(0).message(), HasSubstr("did not answer within 5 s"));
  EXPECT_THAT(answers_[0]->ranks(1).message(), HasSubstr("not connected"));
  Ask({"a"});
  dumps_.EndAll(absl::UnavailableError("draining"));
  ASSERT_EQ(answers_.size(), 2U);
  EXPECT_EQ(answers_[1].status().code(), absl::StatusCode::kUnavailable);
}

v1::StepMetrics Step(double seconds, double waits) {
  v1::StepMetrics metrics;
  metrics.set_step_seconds(seconds);
  metrics.mutable_phases()->set_exposed_gather_seconds(waits);
  return metrics;
}

TEST(StragglerScores, TheSlowRankHasTheLowestScoreAndTheLargestSkew) {
  google::protobuf::RepeatedPtrField<v1::RankStatus> ranks;
  for (int i = 0; i < 3; ++i) ranks.Add();
  StragglerScores scores;
  scores.Reset(3);
  // All steps take as long; rank 1 works for 4 s of 5, the others for 2 s.
  scores.Add(0, Step(5, 3));
  scores.Add(1, Step(5, 1));
  scores.Fill(&ranks);
  EXPECT_EQ(ranks[0].straggler_score(), 0) << "rank 2 has no step yet";
  scores.Add(2, Step(5, 3));
  scores.Fill(&ranks);
  EXPECT_DOUBLE_EQ(ranks[0].straggler_score(), 1);
  EXPECT_DOUBLE_EQ(ranks[1].straggler_score(), 0.5);
  EXPECT_DOUBLE_EQ(ranks[1].collective_skew_seconds(), 2);
  EXPECT_DOUBLE_EQ(ranks[2].collective_skew_seconds(), 0);
  // One bad step of a good rank is no straggler; sixteen are.
  scores.Add(2, Step(50, 0));
  scores.Add(2, Step(5, 3));
  scores.Fill(&ranks);
  EXPECT_DOUBLE_EQ(ranks[2].straggler_score(), 1);
  for (int i = 0; i < 16; ++i) scores.Add(2, Step(9, 1));
  scores.Fill(&ranks);
  EXPECT_DOUBLE_EQ(ranks[2].straggler_score(), 0.25);
  // A new epoch begins anew; out-of-range ranks are nobody's.
  scores.Reset(3);
  scores.Add(7, Step(1, 0));
  ranks[2].clear_straggler_score();
  scores.Fill(&ranks);
  EXPECT_EQ(ranks[2].straggler_score(), 0);
}

// Medians of the last steps did not see them.
TEST(StragglerScores, ShortPausesThatComeBackShow) {
  google::protobuf::RepeatedPtrField<v1::RankStatus> ranks;
  for (int i = 0; i < 2; ++i) ranks.Add();
  StragglerScores scores;
  scores.Reset(2);
  for (int step = 0; step < 16; ++step) {
    // Rank 1 stands still for 8 s in every fourth step, and rank 0 waits for it.
    const bool pauses = step % 4 == 3;
    scores.Add(0, pauses ? Step(10, 8) : Step(2, 0));
    scores.Add(1, pauses ? Step(10, 0) : Step(2, 0));
  }
  scores.Fill(&ranks);
  EXPECT_DOUBLE_EQ(ranks[0].straggler_score(), 1);
  // 12 steps of 2 s and 3 of 10 s: 3.6 s.
  EXPECT_DOUBLE_EQ(ranks[1].straggler_score(), 2 / 3.6);
  EXPECT_DOUBLE_EQ(ranks[1].collective_skew_seconds(), 8.0 * 3 / 15);
}

}  // namespace
}  // namespace fsdp::coordinator

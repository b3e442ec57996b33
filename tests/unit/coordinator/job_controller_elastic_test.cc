// One job that gets more or fewer ranks, holds spares, or has a rank that is too slow.

#include "gmock/gmock.h"
#include "tests/unit/coordinator/job_controller_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class JobElasticTest : public JobControllerTest {
 protected:
  void SetUp() override {
    v1::ResourceSpec& resources = *spec().mutable_resources();
    resources.set_devices_per_node(3);
    resources.set_any_node(true);
    resources.set_min_ranks(2);
    resources.set_max_ranks(4);
    spec().mutable_train()->set_global_batch(12);
    spec().mutable_checkpoint()->set_dir("/ckpt");
    spec().mutable_checkpoint()->set_every_steps(5);
    JobControllerTest::SetUp();
  }
  void Plan(int ranks) {
    Do([&](JobController& controller) { controller.PlanGrowth(ranks); });
  }
  void Hold(const std::vector<WorkerId>& spares) {
    Do([&](JobController& controller) { controller.HoldSpares(spares); });
  }
  double FullSizeUntil() const {
    return absl::ToDoubleSeconds(absl::FromUnixSeconds(job_.record.full_size_until().seconds()) -
                                 now_.wall);
  }
  std::string Message(const std::string& type) const {
    for (const v1::JobEvent& event : effects_.events) {
      if (event.type() == type) return event.message();
    }
    return "";
  }
  // Each rank's own seconds of a step, often enough for a verdict.
  void Steps(const std::vector<double>& seconds, int count = 16) {
    for (int step = 1; step <= count; ++step) {
      for (int rank = static_cast<int>(seconds.size()) - 1; rank >= 0; --rank) {
        v1::StepReport report;
        report.mutable_metrics()->set_step(step);
        report.mutable_metrics()->set_step_seconds(seconds[rank]);
        if (job_.record.phase() != records::EPOCH_PHASE_LIVE) return;
        Do([&](JobController& controller) { controller.OnStep(rank, report); });
      }
    }
  }
};

TEST_F(JobElasticTest, GrowsAtItsNextCheckpointAtNoCost) {
  Start(2);
  EXPECT_EQ(
      job_.job().reason(),
      "epoch 1 runs on 2 ranks; elastic from 2 to 4 ranks (2, 3, 4); grows at a checkpoint once "
      "1 more worker is free");
  Step(4);
  Plan(3);
  EXPECT_THAT(effects_.at_once, IsEmpty());
  EXPECT_THAT(job_.job().reason(), HasSubstr("; grows to 3 at its next checkpoint"));
  Publish(5);
  ASSERT_EQ(effects_.at_once.size(), 2u);
  EXPECT_EQ(effects_.at_once[0].message.stop_rank().mode(), v1::STOP_MODE_CHECKPOINT);
  EXPECT_THAT(Types(), Contains("GROWING"));
  Effects unused;
  EXPECT_TRUE(JobController(job_, options_, now_, unused).ComesBack());
  Written(5);
  Save(6);
  Exit(0, 0);
  Exit(1, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().cause(), v1::FAILURE_CAUSE_UNSPECIFIED);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 0);
  EXPECT_EQ(job_.job().restarts().free(), 1);
  EXPECT_FALSE(effects_.restart_cause);
  EXPECT_FALSE(job_.record.has_earliest_start());
  // Should a worker have gone meanwhile, it waits for nothing.
  EXPECT_LE(FullSizeUntil(), 0);
  Do([&](JobController& controller) {
    std::vector<records::MemberRecord> members(3);
    for (int rank = 0; rank < 3; ++rank) {
      members[rank].set_rank(rank);
      members[rank].set_worker("w" + std::to_string(rank));
    }
    controller.Place(members);
  });
  EXPECT_EQ(effects_.rank_change, 1);
  EXPECT_THAT(Message("RANKS_CHANGED"),
              HasSubstr("3 ranks in place of 2; elastic from 2 to 4 ranks"));
  EXPECT_EQ(job_.growth, 0);
}

TEST_F(JobElasticTest, DoesNotStopAtACheckpointWithoutAPlan) {
  Start(2);
  Plan(2);
  Publish(5);
  EXPECT_THAT(effects_.at_once, IsEmpty());
  Plan(3);
  Plan(0);
  Publish(10);
  EXPECT_THAT(effects_.at_once, IsEmpty());
}

TEST_F(JobElasticTest, DoesNotGrowAtItsEnd) {
  Start(2);
  job_.mutable_job().mutable_progress()->set_total_steps(10);
  Plan(3);
  Publish(10);
  EXPECT_THAT(effects_.at_once, IsEmpty());
}

TEST_F(JobElasticTest, AfterALossItWaitsForItsSizeBeforeItTakesLess) {
  options_.timing.shrink_after = absl::Seconds(7);
  Start(3);
  Step(3);
  Exit(2, 9);
  EXPECT_EQ(FullSizeUntil(), 7);
  Exit(0, 9, true);
  Exit(1, 9, true);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 1);
  Start(2);
  EXPECT_EQ(job_.job().ranks_size(), 2);
  EXPECT_EQ(job_.record.members_size(), 2);
}

TEST_F(JobElasticTest, SparesAreGivenBackWhenTheJobDoesNotRunOn) {
  spec().mutable_resources()->set_spares(1);
  Start(3);
  Hold({WorkerId("w7")});
  EXPECT_TRUE(effects_.spares_changed);
  EXPECT_THAT(job_.job().reason(), HasSubstr("; holds 1 of 1 spare (w7)"));
  Hold({WorkerId("w7")});
  EXPECT_FALSE(effects_.spares_changed);
  // It comes back and wants it.
  Exit(0, 9);
  Exit(1, 9, true);
  Exit(2, 9, true);
  EXPECT_EQ(job_.record.spare_workers_size(), 1);
  Start(3);
  Do([](JobController& controller) { EXPECT_TRUE(controller.Suspend("").ok()); });
  for (int rank = 0; rank < 3; ++rank) Exit(rank, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(job_.record.spare_workers_size(), 0);
  EXPECT_TRUE(effects_.spares_changed);
}

TEST_F(JobElasticTest, APreemptedJobGivesItsSparesAwayAtOnce) {
  Start(3);
  Hold({WorkerId("w7")});
  Do([](JobController& controller) { controller.Preempt("room for jobs/b", std::nullopt); });
  EXPECT_EQ(job_.record.spare_workers_size(), 0);
}

TEST_F(JobElasticTest, ASlowRanksWorkerIsReplacedByASpareAtNoCost) {
  Start(3);
  Hold({WorkerId("w7")});
  Steps({1.0, 1.1, 2.5}, 15);
  EXPECT_THAT(job_.record.excluded_workers(), IsEmpty());
  Steps({1.0, 1.1, 2.5});
  EXPECT_THAT(job_.record.excluded_workers(), ElementsAre("w2"));
  EXPECT_TRUE(effects_.straggler_excluded);
  EXPECT_EQ(effects_.at_once.size(), 3u);
  EXPECT_THAT(Message("STRAGGLER_EXCLUDED"),
              HasSubstr("rank 2 on w2 has a straggler score of 0.40 (below 0.50; a step takes it "
                        "1.5s longer than the fastest rank)"));
  Save(16);
  for (int rank = 0; rank < 3; ++rank) Exit(rank, 0);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job_.job().restarts().infrastructure(), 0);
}

TEST_F(JobElasticTest, ASlowRankStaysWhereNothingIsWonOrLostByIt) {
  Start(3);
  // No spare.
  Steps({1.0, 1.1, 2.5});
  Hold({WorkerId("w7")});
  job_.stragglers.Reset(3);
  // Not slow enough; of no account; not wanted.
  Steps({1.0, 1.1, 1.8});
  job_.stragglers.Reset(3);
  Steps({0.01, 0.01, 0.05});
  job_.stragglers.Reset(3);
  options_.straggler.exclude_below = 0;
  Steps({1.0, 1.1, 2.5});
  options_.straggler.exclude_below = 0.5;
  // Its progress would be lost.
  job_.stragglers.Reset(3);
  spec().mutable_checkpoint()->clear_dir();
  Steps({1.0, 1.1, 2.5});
  EXPECT_THAT(job_.record.excluded_workers(), IsEmpty());
  EXPECT_EQ(job_.record.phase(), records::EPOCH_PHASE_LIVE);
}

// Seen: a rank that died within its first second had told no phase, and no rule for one matched.
TEST_F(JobElasticTest, ARankThatDiesBeforeItsFirstHeartbeatDiesInItsStart) {
  v1::FailureRule& rule = *spec().mutable_failure_policy()->add_rules();
  rule.add_phases(v1::PHASE_START);
  rule.set_action(v1::FAILURE_ACTION_FAIL);
  std::vector<records::MemberRecord> members(1);
  members[0].set_worker("w0");
  Do([&](JobController& controller) { controller.Place(members); });
  // What its daemon says of a trainer that has not spoken yet.
  Do([](JobController& controller) { controller.OnPulse(0, v1::RankPulse()); });
  Exit(0, 11);
  EXPECT_EQ(job_.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job_.job().reason(), HasSubstr("failurePolicy.rules[0]"));
}

}  // namespace
}  // namespace fsdp::coordinator

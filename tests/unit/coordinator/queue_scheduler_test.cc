// Whose turn it is with queues: quotas, shares, preemption, and what people read of it.

#include "coordinator/schedule/queue_scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ClusterView Devices(int count, int per_host = 64) {
  ClusterView view;
  for (int i = 0; i < count; ++i) {
    WorkerView& worker = view.workers.emplace_back();
    worker.host = "h" + std::to_string(i / per_host);
    worker.device_index = i % per_host;
    worker.id = WorkerId(worker.host + ":" + std::to_string(worker.device_index));
    worker.placeable = true;
  }
  return view;
}

QueuePolicy Quota(int quota, std::optional<int> max = std::nullopt, double weight = 1) {
  QueuePolicy policy;
  policy.weight = weight;
  policy.devices[v1::DEVICE_TYPE_CPU] = {.quota = quota, .max = max};
  return policy;
}

class QueueSchedulerTest : public ::testing::Test {
 protected:
  // A job that holds the first free workers.
  ActiveJob& Runs(const std::string& id, const std::string& queue, int devices, int priority = 0) {
    for (WorkerView& worker : state_.view.workers) {
      if (!worker.held_by.empty() || devices == 0) continue;
      worker.held_by = "jobs/" + id;
      --devices;
      ++held_[id];
    }
    ActiveJob& job = state_.running.emplace_back();
    job.entry = {JobId(id), queue, priority, ++position_};
    job.devices = held_[id];
    job.saves = true;
    job.ran = absl::Minutes(10);
    return job;
  }

  QueuedDemand& Waits(const std::string& id, const std::string& queue, int devices,
                      int priority = 0) {
    QueuedDemand& item = state_.waiting.emplace_back();
    item.entry = {JobId(id), queue, priority, ++position_};
    item.demand.devices_per_node = devices;
    item.demand.any_node = true;
    return item;
  }

  void Decide() { result_ = ScheduleQueues(policies_, state_, options_); }

  const PlacementDecision& Of(const std::string& id) {
    for (const QueueDecision& decision : result_.decisions) {
      if (decision.job == JobId(id)) return decision.decision;
    }
    ADD_FAILURE() << "nothing was decided for " << id;
    static const PlacementDecision none;
    return none;
  }
  std::vector<std::string> Victims() {
    std::vector<std::string> victims;
    for (const Preemption& one : result_.preemptions) victims.push_back(one.victim.value());
    return victims;
  }

  QueuePolicies policies_;
  ScheduleState state_;
  ScheduleOptions options_;
  ScheduleResult result_;
  std::map<std::string, int> held_;
  std::int64_t position_ = 0;
};

TEST_F(QueueSchedulerTest, AQueueNeverHoldsMoreThanItsMax) {
  policies_ = {{"a", Quota(2, 4)}, {"b", Quota(0)}};
  state_.view = Devices(8);
  Runs("a1", "a", 3);
  Waits("a2", "a", 2);
  Waits("a3", "a", 1);
  Waits("b1", "b", 5);
  Decide();
  EXPECT_FALSE(Of("a2").placement);
  EXPECT_EQ(Of("a2").kind, WaitKind::kQuota);
  EXPECT_EQ(
      Of("a2").reason,
      "needs 2 cpu workers, but its queue may hold at most 4 and holds 3; queue 'a' uses 3 of "
      "quota 2 (max 4, 0.75 of its fair share)");
  // In its queue the order holds; other queues are not held up.
  EXPECT_EQ(Of("a3").kind, WaitKind::kQuota);
  EXPECT_THAT(Of("a3").reason, HasSubstr("behind jobs/a2 of its queue, which waits for quota"));
  EXPECT_TRUE(Of("b1").placement);
}

TEST_F(QueueSchedulerTest, WhatIsBeingStoppedStillCountsAgainstMax) {
  policies_ = {{"a", Quota(0, 4)}};
  state_.view = Devices(8);
  Runs("a1", "a", 4).stopping = true;
  Waits("a2", "a", 2);
  Decide();
  EXPECT_FALSE(Of("a2").placement);
  EXPECT_EQ(Of("a2").kind, WaitKind::kYielding);
}

TEST_F(QueueSchedulerTest, MoreThanItsQueueMayEverHoldHoldsUpNobody) {
  policies_ = {{"a", Quota(0, 4)}};
  state_.view = Devices(8);
  Waits("huge", "a", 5);
  Waits("small", "a", 1);
  Decide();
  EXPECT_TRUE(Of("huge").beyond_capacity);
  EXPECT_THAT(Of("huge").reason, HasSubstr("more than its queue may ever hold (max 4)"));
  EXPECT_TRUE(Of("small").placement);
}

TEST_F(QueueSchedulerTest, AQueueThatIsNotConfiguredPlacesNothing) {
  policies_ = {{"a", Quota(0)}, {"b", Quota(0)}};
  state_.view = Devices(2);
  Waits("old", "gone", 1);
  Decide();
  EXPECT_EQ(Of("old").kind, WaitKind::kUnknownQueue);
  EXPECT_THAT(Of("old").reason,
              HasSubstr("queue 'gone' is not configured (any more): there are a, b"));
}

TEST_F(QueueSchedulerTest, WithinQuotaGoesBeforeBorrowingWhateverThePriority) {
  policies_ = {{"a", Quota(0)}, {"b", Quota(2)}};
  state_.view = Devices(2);
  Waits("borrower", "a", 2, 1000);
  Waits("owner", "b", 2, -1000);
  Decide();
  EXPECT_TRUE(Of("owner").placement);
  EXPECT_FALSE(Of("borrower").placement);
}

TEST_F(QueueSchedulerTest, TheQueueThatUsesLeastForItsWeightGoesFirst) {
  policies_ = {{"a", Quota(0, std::nullopt, 1)}, {"b", Quota(0, std::nullopt, 3)}};
  state_.view = Devices(6);
  Runs("a0", "a", 1);
  Runs("b0", "b", 2);
  // a: 1 for weight 1; b: 2 for weight 3.
  Waits("a1", "a", 1);
  Waits("b1", "b", 1);
  Waits("a2", "a", 1);
  Waits("b2", "b", 1);
  Decide();
  EXPECT_TRUE(Of("b1").placement);
  EXPECT_TRUE(Of("b2").placement || Of("a1").placement);
  std::vector<std::string> order;
  for (const QueueDecision& decision : result_.decisions) order.push_back(decision.job.value());
  // b at 2/3, then at 3/3 the older a1, then a at 2 waits for b at 1.
  EXPECT_THAT(order, ElementsAre("b1", "a1", "b2", "a2"));
  EXPECT_FALSE(Of("a2").placement);
}

TEST_F(QueueSchedulerTest, LongWaitingGoesBeforeSmallShares) {
  policies_ = {{"a", Quota(0)}, {"b", Quota(0)}};
  state_.view = Devices(3);
  Runs("a0", "a", 1);
  Waits("old", "a", 2).waited = absl::Minutes(31);
  Waits("young", "b", 2);
  Decide();
  EXPECT_TRUE(Of("old").placement);
  EXPECT_THAT(Of("young").reason, HasSubstr("needs 2 cpu workers"));
  state_.waiting[0].waited = absl::Minutes(29);
  Decide();
  EXPECT_TRUE(Of("young").placement);
}

TEST_F(QueueSchedulerTest, BorrowedDevicesAreTakenBackFromAsFewAsAreNeeded) {
  policies_ = {{"prod", Quota(4)}, {"batch", Quota(2)}};
  state_.view = Devices(8);
  Runs("b1", "batch", 2);
  Runs("b2", "batch", 2).ran = absl::Minutes(1);
  Runs("b3", "batch", 4).ran = absl::Minutes(5);
  Waits("p1", "prod", 4);
  Decide();
  // b2 would go first, but b3 alone is enough.
  EXPECT_THAT(Victims(), ElementsAre("b3"));
  EXPECT_EQ(result_.preemptions[0].reason, PreemptionReason::kReclaim);
  EXPECT_EQ(
      result_.preemptions[0].why,
      "gives back borrowed devices to jobs/p1 of queue 'prod' (4 devices), which is within its "
      "quota; queue 'batch' used 8 of quota 2");
  EXPECT_FALSE(Of("p1").placement);
  EXPECT_EQ(Of("p1").kind, WaitKind::kYielding);
  EXPECT_THAT(Of("p1").reason, HasSubstr("next, once jobs/b3 (4), which has been told to save and "
                                         "yield, is gone; queue 'prod' uses 0 of quota 4"));
}

TEST_F(QueueSchedulerTest, NothingIsTakenAgainFromThoseWhoGiveAlready) {
  policies_ = {{"prod", Quota(4)}, {"batch", Quota(0)}};
  state_.view = Devices(8);
  Runs("b1", "batch", 4).stopping = true;
  Runs("b2", "batch", 4);
  Waits("p1", "prod", 4);
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  EXPECT_THAT(Of("p1").reason,
              HasSubstr("next, once jobs/b1 (4), which is being stopped, is gone"));
}

TEST_F(QueueSchedulerTest, WhatIsPromisedIsNotForOthersButTheRestIs) {
  policies_ = {{"prod", Quota(4)}, {"batch", Quota(0)}};
  state_.view = Devices(9);
  Runs("b1", "batch", 4).stopping = true;
  Runs("b2", "batch", 4);
  Waits("p1", "prod", 4);
  Waits("b3", "batch", 1);
  Waits("b4", "batch", 1);
  Decide();
  EXPECT_EQ(Of("p1").kind, WaitKind::kYielding);
  EXPECT_TRUE(Of("b3").placement);
  EXPECT_FALSE(Of("b4").placement);
}

TEST_F(QueueSchedulerTest, NoPreemptionThatWouldNotHelp) {
  policies_ = {{"prod", Quota(4)}, {"batch", Quota(0)}};
  state_.view = Devices(4, 2);
  Runs("b1", "batch", 4);
  // Four on one host, and hosts have two: beyond the cluster, whoever yields.
  Waits("p1", "prod", 4).demand.any_node = false;
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  EXPECT_TRUE(Of("p1").beyond_capacity);
  // Only half of what it needs is borrowed.
  policies_ = {{"prod", Quota(4)}, {"batch", Quota(2)}};
  state_ = {};
  held_.clear();
  state_.view = Devices(4);
  Runs("b1", "batch", 2);
  Runs("b2", "batch", 2);
  Waits("p1", "prod", 4);
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  EXPECT_THAT(Of("p1").reason,
              HasSubstr("preempting all that it may would not make room for it; queue 'prod'"));
}

TEST_F(QueueSchedulerTest, JobsThatCannotSaveAreSparedUnlessTheirQueueSaysOtherwise) {
  policies_ = {{"prod", Quota(2)}, {"batch", Quota(0)}};
  state_.view = Devices(2);
  Runs("b1", "batch", 2).saves = false;
  Waits("p1", "prod", 2);
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  EXPECT_THAT(Of("p1").reason, HasSubstr("cannot make room yet: jobs/b1 has no checkpoint.dir"));
  policies_["batch"].without_checkpoint = true;
  Decide();
  EXPECT_THAT(Victims(), ElementsAre("b1"));
}

TEST_F(QueueSchedulerTest, JobsThatHaveJustBegunAreSparedAsLongAsTheirQueueSays) {
  policies_ = {{"prod", Quota(2)}, {"batch", Quota(0)}};
  policies_["batch"].min_run = absl::Minutes(15);
  state_.view = Devices(2);
  Runs("b1", "batch", 2);
  Waits("p1", "prod", 2);
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  EXPECT_THAT(Of("p1").reason,
              HasSubstr("jobs/b1 has run for 10m of the 15m that its queue protects"));
}

TEST_F(QueueSchedulerTest, PriorityTakesPlacesOnlyInItsOwnQueueAndOnlyOfLowerOnes) {
  policies_ = {{"a", Quota(0)}, {"b", Quota(0)}};
  policies_["a"].preempts_within = true;
  state_.view = Devices(6);
  Runs("low", "a", 2, 1);
  Runs("equal", "a", 2, 5);
  Runs("other", "b", 2, 0);
  Waits("high", "a", 2, 5);
  Decide();
  EXPECT_THAT(Victims(), ElementsAre("low"));
  EXPECT_EQ(result_.preemptions[0].why,
            "makes room for jobs/high of queue 'a' (2 devices), with priority 5 over 1");
  state_.waiting[0].demand.devices_per_node = 4;
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  policies_["a"].preempts_within = false;
  state_.waiting[0].demand.devices_per_node = 2;
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
}

TEST_F(QueueSchedulerTest, AFullQueuesPriorityTakesPlacesToo) {
  policies_ = {{"a", Quota(0, 2)}};
  policies_["a"].preempts_within = true;
  state_.view = Devices(8);
  Runs("low", "a", 2, 1);
  Waits("high", "a", 2, 5);
  Decide();
  EXPECT_THAT(Victims(), ElementsAre("low"));
}

TEST_F(QueueSchedulerTest, ReclaimMayBeLimitedToLowerPrioritiesOrLeft) {
  policies_ = {{"prod", Quota(2)}, {"batch", Quota(0)}};
  policies_["prod"].reclaim = v1::RECLAIM_POLICY_LOWER_PRIORITY;
  state_.view = Devices(2);
  Runs("b1", "batch", 2, 0);
  Waits("p1", "prod", 2, 0);
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
  state_.waiting[0].entry.priority = 1;
  Decide();
  EXPECT_THAT(Victims(), ElementsAre("b1"));
  policies_["prod"].reclaim = v1::RECLAIM_POLICY_NEVER;
  Decide();
  EXPECT_THAT(Victims(), IsEmpty());
}

TEST_F(QueueSchedulerTest, ThoseBehindAreToldWhoIsAheadAndWhy) {
  policies_ = {{"a", Quota(2)}, {"b", Quota(0)}};
  state_.view = Devices(4);
  Runs("b0", "b", 3).saves = false;
  Waits("a1", "a", 2);
  Waits("b1", "b", 1, 7);
  Waits("b2", "b", 1);
  Decide();
  EXPECT_THAT(Of("a1").reason, HasSubstr("needs 2 cpu workers: 1 free of 4; jobs/b0 holds 3"));
  EXPECT_EQ(Of("b1").reason,
            "needs 1 cpu worker: behind jobs/a1 of queue 'a', which is within its quota; queue 'b' "
            "uses 3 of quota 0 (no max, 1.50 of its fair share)");
  EXPECT_TRUE(Of("b2").behind);
  EXPECT_THAT(Of("a1").reason, Not(HasSubstr("yield")));
}

TEST_F(QueueSchedulerTest, ARecoveringJobKeepsItsDevicesButNotBorrowedOnesAgainstAnOwner) {
  policies_ = {{"prod", Quota(2)}, {"batch", Quota(0)}};
  state_.view = Devices(2);
  QueuedDemand& comes_back = Waits("b1", "batch", 2);
  comes_back.recovering = true;
  Waits("b2", "batch", 1);
  Decide();
  EXPECT_FALSE(Of("b2").placement);
  Waits("p1", "prod", 2);
  Decide();
  EXPECT_TRUE(Of("p1").placement);
}

}  // namespace
}  // namespace fsdp::coordinator

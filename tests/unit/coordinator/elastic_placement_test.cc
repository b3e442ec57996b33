// Elastic jobs and spares: how many workers a job gets, which, and what others may not take.

#include "coordinator/schedule/queue_scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClusterView Cluster(int hosts, int per_host) {
  ClusterView view;
  for (int i = 0; i < hosts * per_host; ++i) {
    WorkerView& worker = view.workers.emplace_back();
    worker.host = "h" + std::to_string(i / per_host);
    worker.device_index = i % per_host;
    worker.id = WorkerId("w" + std::to_string(i));
    worker.placeable = true;
  }
  return view;
}

// Names `size` ranks, of `sizes`; takes as few as `least` now.
Demand Elastic(int size, std::vector<int> sizes, int least, int spares = 0) {
  Demand demand;
  demand.any_node = true;
  demand.full_size = size;
  demand.sizes = std::move(sizes);
  demand.spares = spares;
  demand.Accept(least);
  return demand;
}

std::vector<std::string> Names(const std::vector<WorkerId>& workers) {
  std::vector<std::string> names;
  for (const WorkerId& id : workers) names.push_back(id.value());
  return names;
}

int RanksOf(const PlacementDecision& decision) {
  return decision.placement ? static_cast<int>(decision.placement->size()) : 0;
}

TEST(ElasticPlacementTest, TheLargestSizeThatThereIsRoomFor) {
  const Demand demand = Elastic(4, {2, 3, 4, 8}, 2);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 2))), 2);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 3))), 3);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 7))), 4);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 8))), 8);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 20))), 8);
  EXPECT_EQ(RanksOf(PlaceGang(demand, Cluster(1, 1))), 0);
}

TEST(ElasticPlacementTest, BeforeItsTimeItWaitsForTheSizeThatItHad) {
  const Demand demand = Elastic(4, {2, 3, 4}, 4);
  const PlacementDecision decision = PlaceGang(demand, Cluster(1, 3));
  EXPECT_FALSE(decision.placement);
  EXPECT_THAT(decision.reason, HasSubstr("needs 4 cpu workers: 3 free of 3"));
}

TEST(ElasticPlacementTest, SizesOfWholeNodesComeFromWholeNodes) {
  Demand demand;
  demand.nodes = 2;
  demand.devices_per_node = 4;
  demand.full_size = 8;
  demand.sizes = {4, 8, 12};
  demand.Accept(4);
  ClusterView view = Cluster(3, 4);
  EXPECT_EQ(RanksOf(PlaceGang(demand, view)), 12);
  view.workers[0].placeable = false;
  const PlacementDecision decision = PlaceGang(demand, view);
  EXPECT_THAT(Names(*decision.placement),
              ElementsAre("w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11"));
}

TEST(ElasticPlacementTest, TheWorkersThatItHadKeepTheirRanksWhenTheSizeIsTheSame) {
  Demand demand = Elastic(3, {2, 3}, 2);
  demand.previous = {WorkerId("w2"), WorkerId("w0")};
  EXPECT_THAT(Names(*PlaceGang(demand, Cluster(1, 3)).placement), ElementsAre("w0", "w1", "w2"));
  ClusterView view = Cluster(1, 3);
  view.workers[1].placeable = false;
  EXPECT_THAT(Names(*PlaceGang(demand, view).placement), ElementsAre("w2", "w0"));
}

TEST(ElasticPlacementTest, SparesGoBeforeRanksBeyondTheSpecsSizeAndAfterThoseBelow) {
  const Demand demand = Elastic(2, {1, 2, 3, 4}, 1, /*spares=*/1);
  const auto ranks_and_spares = [&](int workers) {
    const PlacementDecision decision = PlaceGang(demand, Cluster(1, workers));
    return std::pair(RanksOf(decision), static_cast<int>(decision.spares.size()));
  };
  EXPECT_EQ(ranks_and_spares(1), std::pair(1, 0));
  EXPECT_EQ(ranks_and_spares(2), std::pair(2, 0));
  EXPECT_EQ(ranks_and_spares(3), std::pair(2, 1));
  EXPECT_EQ(ranks_and_spares(4), std::pair(3, 1));
  EXPECT_EQ(ranks_and_spares(9), std::pair(4, 1));
}

TEST(ElasticPlacementTest, ASpareOfAJobWithWholeNodesIsAWholeNode) {
  Demand demand;
  demand.devices_per_node = 2;
  demand.full_size = 2;
  demand.spares = 2;
  ClusterView view = Cluster(3, 2);
  view.workers[3].placeable = false;
  const PlacementDecision decision = PlaceGang(demand, view);
  EXPECT_THAT(Names(*decision.placement), ElementsAre("w0", "w1"));
  EXPECT_THAT(Names(decision.spares), ElementsAre("w4", "w5"));
  view.workers[5].placeable = false;
  EXPECT_THAT(PlaceGang(demand, view).spares, IsEmpty());
}

TEST(ElasticPlacementTest, ASpareThatIsHeldStaysTheSpare) {
  Demand demand = Elastic(1, {}, 1, /*spares=*/1);
  demand.held_spares = {WorkerId("w2")};
  EXPECT_THAT(Names(PickSpares(demand, Cluster(1, 4), 1)), ElementsAre("w2"));
  EXPECT_THAT(Names(PickSpares(demand, Cluster(1, 4), 2)), ElementsAre("w2", "w0"));
  EXPECT_THAT(PickSpares(demand, Cluster(1, 4), 0), IsEmpty());
}

QueuedDemand Queued(const std::string& id, std::int64_t position, Demand demand) {
  return {.entry = {JobId(id), "default", 0, position}, .demand = std::move(demand)};
}

TEST(ElasticPlacementTest, AJobBehindGetsNeitherRanksNorSparesOfTheOneBefore) {
  const auto decisions = ScheduleQueue(
      {Queued("first", 1, Elastic(2, {}, 2, /*spares=*/1)), Queued("second", 2, Elastic(2, {}, 2))},
      Cluster(1, 4));
  EXPECT_EQ(RanksOf(decisions[0].decision), 2);
  EXPECT_EQ(decisions[0].decision.spares.size(), 1u);
  EXPECT_FALSE(decisions[1].decision.placement);
}

TEST(ElasticPlacementTest, ARecoveringJobTakesTheSpareThatItHolds) {
  ClusterView view = Cluster(1, 4);
  // It ran on w0 and w1, of which w1 is lost; w2 is its spare, w3 another job's.
  view.workers[0].held_by = "jobs/old";
  view.workers[1].placeable = false;
  view.workers[2].held_by = "jobs/old";
  view.workers[3].held_by = "jobs/other";
  QueuedDemand old = Queued("old", 1, Elastic(2, {}, 2, /*spares=*/1));
  old.demand.held_spares = {WorkerId("w2")};
  // Its epoch is over, nothing keeps w0 but the spare's claim on w2.
  view.workers[0].held_by.clear();
  const auto decisions = ScheduleQueue({old, Queued("later", 2, Elastic(1, {}, 1))}, view);
  ASSERT_TRUE(decisions[0].decision.placement);
  EXPECT_THAT(Names(*decisions[0].decision.placement), ElementsAre("w0", "w2"));
  EXPECT_FALSE(decisions[1].decision.placement);
}

class ElasticQueueTest : public ::testing::Test {
 protected:
  ElasticQueueTest() {
    QueuePolicy policy;
    policy.devices[v1::DEVICE_TYPE_CPU] = {.quota = 2, .max = 3};
    policies_ = {{"q", policy}};
    state_.view = Cluster(1, 8);
  }
  const PlacementDecision& Decide(Demand demand) {
    QueuedDemand item = Queued("a", 1, std::move(demand));
    item.entry.queue = "q";
    state_.waiting = {item};
    result_ = ScheduleQueues(policies_, state_, {});
    return result_.decisions.at(0).decision;
  }

  QueuePolicies policies_;
  ScheduleState state_;
  ScheduleResult result_;
};

TEST_F(ElasticQueueTest, RanksAndSparesStayWithinTheQueuesMax) {
  EXPECT_EQ(RanksOf(Decide(Elastic(2, {1, 2, 3, 4, 5}, 1))), 3);
  const PlacementDecision& decision = Decide(Elastic(2, {1, 2, 3, 4, 5}, 1, /*spares=*/2));
  EXPECT_EQ(RanksOf(decision), 2);
  EXPECT_EQ(decision.spares.size(), 1u);
}

TEST_F(ElasticQueueTest, WhatOthersOfTheQueueHoldLeavesLess) {
  ActiveJob other;
  other.entry = {JobId("b"), "q", 0, 2};
  other.devices = 2;
  state_.running = {other};
  state_.view.workers[0].held_by = "jobs/b";
  state_.view.workers[1].held_by = "jobs/b";
  EXPECT_EQ(RanksOf(Decide(Elastic(2, {1, 2, 3}, 1))), 1);
  EXPECT_EQ(result_.decisions[0].decision.kind, WaitKind::kDevices);
  // Not before its time.
  EXPECT_FALSE(Decide(Elastic(2, {1, 2, 3}, 2)).placement);
}

}  // namespace
}  // namespace fsdp::coordinator

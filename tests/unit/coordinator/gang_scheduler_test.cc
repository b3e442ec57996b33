// Placement: all ranks or none, where, and why not.

#include "coordinator/schedule/gang_scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterView Cluster(const std::vector<std::pair<std::string, int>>& hosts) {
  ClusterView view;
  for (const auto& [host, count] : hosts) {
    for (int i = 0; i < count; ++i) {
      WorkerView& worker = view.workers.emplace_back();
      worker.id = WorkerId(host + ":" + std::to_string(i));
      worker.host = host;
      worker.device_index = i;
      worker.placeable = true;
    }
  }
  return view;
}

std::vector<std::string> Names(const PlacementDecision& decision) {
  std::vector<std::string> names;
  if (!decision.placement) return names;
  for (const WorkerId& id : *decision.placement) names.push_back(id.value());
  return names;
}

Demand Ask(int nodes, int devices) {
  Demand demand;
  demand.nodes = nodes;
  demand.devices_per_node = devices;
  return demand;
}

TEST(GangSchedulerTest, RanksOfAHostAreContiguousAndHostsSortByNumber) {
  const ClusterView view = Cluster({{"node-10", 2}, {"node-9", 2}});
  EXPECT_THAT(Names(PlaceGang(Ask(2, 2), view)),
              ElementsAre("node-9:0", "node-9:1", "node-10:0", "node-10:1"));
}

TEST(GangSchedulerTest, AllOrNoneWithNumbersAndHolders) {
  ClusterView view = Cluster({{"a", 4}});
  view.workers[0].held_by = "jobs/x";
  view.workers[1].held_by = "jobs/x";
  const PlacementDecision decision = PlaceGang(Ask(1, 3), view);
  EXPECT_FALSE(decision.placement);
  EXPECT_FALSE(decision.beyond_capacity);
  EXPECT_EQ(decision.reason, "needs 3 cpu workers (1 node x 3): 2 free of 4; jobs/x holds 2");
}

// "4 free of 4, too small" puzzles who sees four free workers.
TEST(GangSchedulerTest, DevicesOnTooFewHostsAreToldApartFromTooFewDevices) {
  EXPECT_EQ(PlaceGang(Ask(4, 1), Cluster({{"a", 4}})).reason,
            "needs 4 cpu workers (4 nodes x 1): 4 free of 4, enough devices but on too few hosts: "
            "4 hosts with 1 each needed (resources.nodes x devicesPerNode), 1 of 1 host has that "
            "many; resources.anyNode: true takes devices wherever they are");
  EXPECT_THAT(PlaceGang(Ask(1, 4), Cluster({{"a", 3}, {"b", 3}})).reason,
              HasSubstr("1 host with 4 each needed (resources.nodes x devicesPerNode), 0 of 2 "
                        "hosts have that many"));
  EXPECT_EQ(PlaceGang(Ask(1, 8), Cluster({{"a", 4}})).reason,
            "needs 8 cpu workers (1 node x 8): 4 free of 4, the cluster is too small for it");
}

TEST(GangSchedulerTest, TheFullestHostThatFitsIsUsedSoThatOthersStayWhole) {
  EXPECT_THAT(Names(PlaceGang(Ask(1, 2), Cluster({{"a", 8}, {"b", 2}}))),
              ElementsAre("b:0", "b:1"));
}

TEST(GangSchedulerTest, ThreeOnEachOfTwoNodesIsNotSixAnywhere) {
  Demand demand = Ask(1, 6);
  const ClusterView view = Cluster({{"a", 3}, {"b", 3}});
  EXPECT_TRUE(PlaceGang(demand, view).beyond_capacity);
  demand.any_node = true;
  EXPECT_EQ(Names(PlaceGang(demand, view)).size(), 6u);
}

TEST(GangSchedulerTest, TheLastEpochsWorkersKeepTheirRanks) {
  Demand demand = Ask(1, 2);
  demand.previous = {WorkerId("a:3"), WorkerId("a:1")};
  ClusterView view = Cluster({{"a", 4}});
  EXPECT_THAT(Names(PlaceGang(demand, view)), ElementsAre("a:3", "a:1"));
  view.workers[1].placeable = false;
  EXPECT_THAT(Names(PlaceGang(demand, view)), ElementsAre("a:0", "a:2"));
}

TEST(GangSchedulerTest, ExcludedWorkersAndOtherDevicesAreLeftOut) {
  ClusterView view = Cluster({{"a", 3}});
  view.workers[0].device = v1::DEVICE_TYPE_CUDA;
  Demand demand = Ask(1, 1);
  demand.excluded = {WorkerId("a:1")};
  EXPECT_THAT(Names(PlaceGang(demand, view)), ElementsAre("a:2"));
}

QueuedDemand Queued(const std::string& id, int priority, std::int64_t position, int devices) {
  return {.entry = {JobId(id), "default", priority, position}, .demand = Ask(1, devices)};
}

TEST(GangSchedulerTest, PriorityThenAgeAndNoOvertakingOfALargeGang) {
  ClusterView view = Cluster({{"a", 4}});
  view.workers[0].held_by = "jobs/running";
  const auto decisions = ScheduleQueue(
      {Queued("small", 0, 3, 1), Queued("large", 0, 2, 4), Queued("urgent", 5, 4, 1)}, view);
  ASSERT_EQ(decisions.size(), 3u);
  EXPECT_EQ(decisions[0].job, JobId("urgent"));
  EXPECT_TRUE(decisions[0].decision.placement);
  EXPECT_EQ(decisions[1].job, JobId("large"));
  EXPECT_FALSE(decisions[1].decision.placement);
  EXPECT_FALSE(decisions[2].decision.placement);
  EXPECT_THAT(decisions[2].decision.reason, HasSubstr("waits behind jobs/large"));
}

TEST(GangSchedulerTest, AJobThatTheClusterCannotHoldBlocksNobody) {
  const auto decisions =
      ScheduleQueue({Queued("huge", 0, 1, 64), Queued("small", 0, 2, 1)}, Cluster({{"a", 2}}));
  EXPECT_TRUE(decisions[0].decision.beyond_capacity);
  EXPECT_TRUE(decisions[1].decision.placement);
}

QueuedDemand Recovering(QueuedDemand item, const std::vector<std::string>& previous) {
  item.recovering = true;
  for (const std::string& id : previous) item.demand.previous.emplace_back(id);
  return item;
}

// Seen: a trainer of `old` was killed, three of its four workers came free first, and `later` took
// them until its end.
TEST(GangSchedulerTest, WhatARecoveringJobGivesBackIsNotForTheJobBehindIt) {
  ClusterView view = Cluster({{"a", 4}});
  view.workers[2].held_by = "jobs/old";
  const QueuedDemand old = Recovering(Queued("old", 0, 1, 4), {"a:0", "a:1", "a:2", "a:3"});
  const auto decisions = ScheduleQueue({Queued("later", 0, 2, 3), old}, view);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].job, JobId("old"));
  EXPECT_FALSE(decisions[0].decision.placement);
  EXPECT_FALSE(decisions[1].decision.placement);
  EXPECT_TRUE(decisions[1].decision.behind);
  EXPECT_EQ(decisions[1].decision.reason,
            "needs 3 cpu workers, which are free, but waits behind jobs/old, which is recovering");
  // A higher priority goes first all the same.
  EXPECT_EQ(Names(ScheduleQueue({Queued("urgent", 1, 2, 3), old}, view)[0].decision).size(), 3u);
}

TEST(GangSchedulerTest, AJobBehindARecoveringOneTakesWhatThatDoesNotNeed) {
  ClusterView view = Cluster({{"a", 6}});
  view.workers[1].held_by = "jobs/old";
  const QueuedDemand old = Recovering(Queued("old", 0, 1, 4), {"a:0", "a:1", "a:2", "a:3"});
  EXPECT_THAT(Names(ScheduleQueue({old, Queued("later", 0, 2, 2)}, view)[1].decision),
              ElementsAre("a:4", "a:5"));
  EXPECT_FALSE(ScheduleQueue({old, Queued("later", 0, 2, 3)}, view)[1].decision.placement);
  // One of its workers is lost: it needs another in its place.
  view.workers[3].placeable = false;
  EXPECT_FALSE(ScheduleQueue({old, Queued("later", 0, 2, 2)}, view)[1].decision.placement);
  EXPECT_EQ(Names(ScheduleQueue({old, Queued("later", 0, 2, 1)}, view)[1].decision).size(), 1u);
}

TEST(GangSchedulerTest, ARecoveringJobThatLacksWorkersWaitsLikeAnyOtherUnlessItIsBeyondCapacity) {
  ClusterView view = Cluster({{"a", 4}});
  view.workers[3].placeable = false;
  const QueuedDemand old = Recovering(Queued("old", 0, 1, 4), {"a:0", "a:1", "a:2", "a:3"});
  const auto waiting = ScheduleQueue({old, Queued("later", 0, 2, 3)}, view);
  EXPECT_FALSE(waiting[1].decision.placement);
  EXPECT_THAT(waiting[1].decision.reason, HasSubstr("waits behind jobs/old, which is recovering"));
  view.workers[3].capacity = false;
  EXPECT_TRUE(ScheduleQueue({old, Queued("later", 0, 2, 3)}, view)[1].decision.placement);
}

}  // namespace
}  // namespace fsdp::coordinator

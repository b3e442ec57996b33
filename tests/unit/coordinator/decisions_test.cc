// The pure decisions: state table, retry, placement, liveness, hang rule, rendezvous, options.

#include "coordinator/config/options.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/lifecycle/retry_policy.h"
#include "coordinator/membership/hang_rule.h"
#include "coordinator/membership/liveness.h"
#include "coordinator/membership/worker_registry.h"
#include "coordinator/rendezvous/rendezvous.h"
#include "coordinator/schedule/gang_scheduler.h"
#include "coordinator/store/job_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MonotonicTime At(double seconds) {
  return MonotonicTime::FromSinceStart(absl::Seconds(1000 + seconds));
}

// --- states

TEST(JobStateTest, TerminalStatesLeadOnlyBackIntoTheQueue) {
  for (int from = v1::JOB_STATE_SUCCEEDED; from <= v1::JOB_STATE_CANCELLED; ++from) {
    for (int to = v1::JOB_STATE_QUEUED; to <= v1::JOB_STATE_CANCELLED; ++to) {
      const bool restart = from != v1::JOB_STATE_SUCCEEDED && to == v1::JOB_STATE_QUEUED;
      EXPECT_EQ(IsLegalTransition(static_cast<v1::JobState>(from), static_cast<v1::JobState>(to)),
                restart)
          << from << " -> " << to;
    }
  }
}

TEST(JobStateTest, AnIllegalTransitionIsRefusedAndChangesNothing) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(v1::JOB_STATE_QUEUED);
  const absl::Status status = Transition(job, v1::JOB_STATE_RUNNING, "", absl::Now());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/a is QUEUED"));
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
}

// --- retry

FailureFacts Facts(v1::FailureCause cause) {
  FailureFacts facts;
  facts.cause.set_cause(cause);
  return facts;
}

TEST(RetryPolicyTest, ASignalIsInfrastructureAndRestartsWithoutBackoffAfterProgress) {
  FailureFacts facts = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  facts.progressed = true;
  facts.restarts_since_progress = 5;
  const RetryDecision decision = DecideRetry({}, facts);
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.backoff, absl::ZeroDuration());
  EXPECT_EQ(decision.counts.infrastructure(), 1);
  EXPECT_EQ(decision.counts.no_progress(), 0);
}

TEST(RetryPolicyTest, BackoffDoublesToItsCap) {
  v1::FailurePolicy policy;
  policy.set_max_no_progress_restarts(1000);
  policy.set_max_infrastructure_restarts(1000);
  std::vector<double> waits;
  for (const int restarts : {0, 1, 2, 3, 7, 8, 50}) {
    FailureFacts facts = Facts(v1::FAILURE_CAUSE_WORKER_LOST);
    facts.restarts_since_progress = restarts;
    waits.push_back(absl::ToDoubleSeconds(DecideRetry(policy, facts).backoff));
  }
  EXPECT_THAT(waits, ElementsAre(0, 1, 2, 4, 64, 100, 100));
}

TEST(RetryPolicyTest, BudgetsEnd) {
  FailureFacts user = Facts(v1::FAILURE_CAUSE_RANK_FAILED);
  EXPECT_FALSE(DecideRetry({}, user).restart);
  FailureFacts infrastructure = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  infrastructure.progressed = true;
  infrastructure.counts.set_infrastructure(10);
  EXPECT_FALSE(DecideRetry({}, infrastructure).restart);
  EXPECT_THAT(DecideRetry({}, infrastructure).reason, HasSubstr("10 of 10 used"));
  FailureFacts stuck = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  stuck.counts.set_no_progress(3);
  EXPECT_FALSE(DecideRetry({}, stuck).restart);
  EXPECT_THAT(DecideRetry({}, stuck).reason, HasSubstr("no progress in 3 restarts"));
}

TEST(RetryPolicyTest, ExitCode93NeverRestartsWhateverTheRules) {
  v1::FailurePolicy policy;
  policy.add_rules()->set_action(v1::FAILURE_ACTION_RESTART_FREE);
  FailureFacts facts = Facts(v1::FAILURE_CAUSE_RANK_FAILED);
  facts.cause.set_exit_code(93);
  EXPECT_FALSE(DecideRetry(policy, facts).restart);
}

TEST(RetryPolicyTest, TheFirstMatchingRuleDecides) {
  v1::FailurePolicy policy;
  v1::FailureRule& by_log = *policy.add_rules();
  by_log.set_log_regex("CUDA error: (un)?correctable ECC");
  by_log.set_action(v1::FAILURE_ACTION_EXCLUDE_WORKER);
  v1::FailureRule& by_code = *policy.add_rules();
  by_code.add_exit_codes(1);
  by_code.set_action(v1::FAILURE_ACTION_FAIL);
  FailureFacts facts = Facts(v1::FAILURE_CAUSE_RANK_FAILED);
  facts.cause.set_exit_code(1);
  EXPECT_FALSE(DecideRetry(policy, facts).restart);
  facts.cause.add_last_lines("rank 3: CUDA error: uncorrectable ECC error");
  const RetryDecision decision = DecideRetry(policy, facts);
  EXPECT_TRUE(decision.restart);
  EXPECT_TRUE(decision.exclude_worker);
  EXPECT_THAT(decision.reason, HasSubstr("rules[0]"));
}

TEST(RetryPolicyTest, AllThatARuleGivesMustMatch) {
  v1::FailureRule rule;
  rule.add_signals(9);
  rule.add_phases(v1::PHASE_CHECKPOINT);
  FailureFacts facts = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  facts.cause.set_signal(9);
  EXPECT_FALSE(RuleMatches(rule, facts));
  facts.phase = v1::PHASE_CHECKPOINT;
  EXPECT_TRUE(RuleMatches(rule, facts));
}

TEST(RetryPolicyTest, ADrainIsFree) {
  FailureFacts facts = Facts(v1::FAILURE_CAUSE_DRAINED);
  facts.counts.set_infrastructure(10);
  const RetryDecision decision = DecideRetry({}, facts);
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.counts.free(), 1);
  EXPECT_EQ(decision.counts.infrastructure(), 10);
}

// --- placement

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

// --- liveness

TEST(LivenessTest, SilenceIsSuspectThenLostAndAClosedStreamIsEvidence) {
  const TimingOptions timing;
  LivenessFacts facts{.connected = true, .heard = At(0)};
  EXPECT_EQ(CheckStale(At(4.9), facts, timing), Liveness::kAlive);
  EXPECT_EQ(CheckStale(At(5), facts, timing), Liveness::kSuspect);
  EXPECT_EQ(CheckStale(At(10), facts, timing), Liveness::kLost);
  facts.connected = false;
  facts.disconnected = At(0);
  EXPECT_EQ(CheckStale(At(0.9), facts, timing), Liveness::kSuspect);
  EXPECT_EQ(CheckStale(At(1), facts, timing), Liveness::kLost);
  facts.awaiting_adoption = true;
  EXPECT_EQ(CheckStale(At(19), facts, timing), Liveness::kSuspect);
  EXPECT_EQ(CheckStale(At(20), facts, timing), Liveness::kLost);
}

// --- registry

v1::WorkerHello Hello(const std::string& life, std::int64_t spool_last) {
  v1::WorkerHello hello;
  hello.set_worker("w0");
  hello.set_incarnation(life);
  hello.set_protocol_version(kProtocolVersion);
  hello.set_spool_last(spool_last);
  return hello;
}

// A daemon that was killed sends its spool again: what was durable must not count twice.
TEST(WorkerRegistryTest, AcknowledgementsSurviveANewLifeOnTheSameSpool) {
  WorkerRegistry registry;
  const TimePoint now{At(0), absl::UnixEpoch()};
  registry.Accept(Hello("a", 0), nullptr, now).record.set_acked_sequence(40);
  EXPECT_EQ(registry.Accept(Hello("b", 45), nullptr, now).received_sequence, 40);
  EXPECT_EQ(registry.Accept(Hello("c", 3), nullptr, now).received_sequence, 0);
  EXPECT_EQ(registry.CheckHello(Hello("a", 0)).code(), absl::StatusCode::kAborted);
}

TEST(WorkerRegistryTest, ProtocolVersionsMayDifferByOne) {
  WorkerRegistry registry;
  v1::WorkerHello hello = Hello("a", 0);
  hello.set_protocol_version(kProtocolVersion + 1);
  EXPECT_TRUE(registry.CheckHello(hello).ok());
  hello.set_protocol_version(kProtocolVersion + 2);
  EXPECT_EQ(registry.CheckHello(hello).code(), absl::StatusCode::kFailedPrecondition);
  hello.set_worker("no/slash");
  EXPECT_EQ(registry.CheckHello(hello).code(), absl::StatusCode::kInvalidArgument);
}

// --- hang rule

RankPulseView InCollective(std::int64_t started, double pending, double changed) {
  RankPulseView view;
  view.pulse.set_step(50);
  view.pulse.set_phase(v1::PHASE_TRAIN);
  view.pulse.set_collective_started(started);
  view.pulse.set_collective_finished(started - 1);
  view.pulse.set_collective("all_gather layers.3");
  view.pulse.set_collective_pending_seconds(pending);
  view.pulse.set_median_step_seconds(0.5);
  view.pulse.set_median_collective_seconds(0.01);
  view.changed = At(changed);
  return view;
}

RankPulseView Computing(std::int64_t finished, double changed) {
  RankPulseView view = InCollective(finished, 0, changed);
  view.pulse.set_collective_finished(finished);
  return view;
}

TEST(HangRuleTest, NamesTheRankThatHasNotStartedTheCollective) {
  HangFacts facts;
  facts.progressed = At(0);
  facts.ranks = {InCollective(4711, 31, 31), Computing(4710, 0), InCollective(4711, 30.5, 31)};
  const HangVerdict verdict = CheckHang(At(31), facts, {});
  EXPECT_EQ(verdict.level, HangLevel::kAbort);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.collective, "all_gather layers.3, sequence 4711");
  EXPECT_THAT(verdict.message, HasSubstr("rank 1 has not started it"));
}

TEST(HangRuleTest, NamesTheRankWhosePulseFrozeInsideTheCollective) {
  HangFacts facts;
  facts.progressed = At(0);
  // Rank 2 was stopped inside: its last pulse is repeated and no longer changes.
  facts.ranks = {InCollective(9, 30.5, 31), InCollective(9, 30.5, 31), InCollective(9, 0.2, 1)};
  const HangVerdict verdict = CheckHang(At(31.2), facts, {});
  EXPECT_EQ(verdict.level, HangLevel::kAbort);
  EXPECT_EQ(verdict.rank, 2);
}

// Seen with a stopped trainer: its last pulse was inside a collective that its peer had long left.
TEST(HangRuleTest, TheCollectiveIsTheOneThatLiveRanksWaitIn) {
  HangFacts facts;
  facts.progressed = At(0);
  facts.ranks = {InCollective(1655, 31, 31), InCollective(1641, 0.01, 0)};
  const HangVerdict verdict = CheckHang(At(31.5), facts, {});
  EXPECT_EQ(verdict.level, HangLevel::kAbort);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.collective, "all_gather layers.3, sequence 1655");
  EXPECT_THAT(verdict.message, HasSubstr("has not started it and has been silent for 32 s"));
}

TEST(HangRuleTest, DiagnosesBeforeItAbortsAndScalesWithTheJob) {
  HangFacts facts;
  facts.progressed = At(0);
  facts.ranks = {InCollective(9, 6, 6), Computing(8, 0)};
  EXPECT_EQ(CheckHang(At(6), facts, {}).level, HangLevel::kDiagnose);
  facts.ranks = {InCollective(9, 4, 4), Computing(8, 0)};
  EXPECT_EQ(CheckHang(At(4), facts, {}).level, HangLevel::kNone);
  // Slow steps: 5 x 10 s.
  facts.ranks = {InCollective(9, 40, 40), Computing(8, 0)};
  facts.ranks[0]->pulse.set_median_step_seconds(10);
  EXPECT_EQ(CheckHang(At(40), facts, {}).level, HangLevel::kDiagnose);
  facts.job_limit = absl::Seconds(3);
  facts.ranks[0]->pulse.set_median_step_seconds(0.1);
  EXPECT_EQ(CheckHang(At(40), facts, {}).level, HangLevel::kAbort);
}

TEST(HangRuleTest, CheckpointEvaluationAndWarmUpGetMorePatience) {
  for (const v1::Phase phase : {v1::PHASE_CHECKPOINT, v1::PHASE_EVALUATE, v1::PHASE_START}) {
    HangFacts facts;
    facts.progressed = At(0);
    facts.ranks = {InCollective(9, 100, 100), Computing(8, 100)};
    facts.ranks[1]->pulse.set_phase(phase);
    EXPECT_NE(CheckHang(At(100), facts, {}).level, HangLevel::kAbort) << phase;
    facts.ranks[0] = InCollective(9, 301, 301);
    facts.ranks[1]->changed = At(301);
    EXPECT_EQ(CheckHang(At(301), facts, {}).level, HangLevel::kAbort) << phase;
  }
}

// Seen with a trainer stopped within a second of a checkpoint: ten times the limit went by.
TEST(HangRuleTest, TheLastWordOfASilentRankGivesNoPatience) {
  HangFacts facts;
  facts.progressed = At(0);
  facts.ranks = {InCollective(9, 31, 31), Computing(8, 0)};
  facts.ranks[1]->pulse.set_phase(v1::PHASE_CHECKPOINT);
  EXPECT_EQ(CheckHang(At(31), facts, {}).level, HangLevel::kAbort);
  EXPECT_EQ(CheckHang(At(31), facts, {}).rank, 1);
  // Nobody speaks, as after the coordinator's own pause: the last words are all there is.
  facts.ranks[0] = InCollective(9, 0.1, 0);
  EXPECT_NE(CheckHang(At(31), facts, {}).level, HangLevel::kAbort);
}

// --- rendezvous

TEST(RendezvousTest, GetsWaitAndPutsAnswerThem) {
  RendezvousTable table;
  EXPECT_EQ(table.Get(1, "a"), nullptr);
  EXPECT_EQ(table.Get(2, "a"), nullptr);
  std::vector<int> waiters;
  ASSERT_TRUE(table.Put("a", "value", 4, &waiters).ok());
  EXPECT_THAT(waiters, ElementsAre(1, 2));
  ASSERT_NE(table.Get(3, "a"), nullptr);
  EXPECT_EQ(*table.Get(3, "a"), "value");
  EXPECT_EQ(table.Put("b", std::string((64 << 10) + 1, 'x'), 4, &waiters).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RendezvousTest, TheDisagreementNamesRankPathAndBothPlans) {
  records::JobRecord record;
  for (int rank = 0; rank < 3; ++rank) {
    auto& member = *record.add_members();
    member.set_rank(rank);
    member.set_worker("w" + std::to_string(rank));
    member.mutable_joined()->set_plan_hash(0xabc);
  }
  EXPECT_FALSE(CompareJoined(record.members()));
  record.mutable_members(2)->mutable_joined()->set_plan_hash(0xdef);
  const auto disagreement = CompareJoined(record.members());
  ASSERT_TRUE(disagreement);
  EXPECT_EQ(disagreement->rank, 2);
  EXPECT_THAT(disagreement->message, HasSubstr("def"));
  EXPECT_THAT(disagreement->message, HasSubstr("abc"));
}

// --- options

TEST(OptionsTest, ABindBeyondLoopbackMustBeAskedFor) {
  Options options;
  options.state_dir = "/tmp/x";
  EXPECT_TRUE(ValidateOptions(options).ok());
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "host.example:1"}) {
    options.listen = address;
    EXPECT_EQ(ValidateOptions(options).code(), absl::StatusCode::kFailedPrecondition) << address;
  }
  options.insecure = true;
  EXPECT_TRUE(ValidateOptions(options).ok());
  for (const char* address : {"7070", ":7070", "127.0.0.1:", "127.0.0.1:99999"}) {
    options.listen = address;
    EXPECT_EQ(ValidateOptions(options).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST(OptionsTest, TlsIsRefusedNotIgnored) {
  Options options;
  options.state_dir = "/tmp/x";
  options.tls.key = "/etc/key.pem";
  EXPECT_EQ(ValidateOptions(options).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace fsdp::coordinator

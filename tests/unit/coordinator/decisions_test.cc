// The pure decisions: state table, liveness, hang rule, rendezvous, options. Placement has a
// test of its own.

#include "coordinator/config/options.h"
#include "coordinator/config/store_options.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/membership/hang_rule.h"
#include "coordinator/membership/liveness.h"
#include "coordinator/membership/worker_registry.h"
#include "coordinator/rendezvous/rendezvous.h"
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
  EXPECT_THAT(verdict.message, HasSubstr("rank 1 had not started it when it fell silent 31 s ago"));
  // One that still reports.
  facts.ranks[1] = Computing(4710, 30);
  EXPECT_EQ(CheckHang(At(31), facts, {}).rank, 1);
  EXPECT_THAT(CheckHang(At(31), facts, {}).message, HasSubstr("rank 1 has not started it"));
}

TEST(HangRuleTest, WithoutACollectiveOnlyASilentRankIsCalledSilent) {
  HangFacts facts;
  facts.progressed = At(0);
  facts.ranks = {Computing(10, 400), Computing(10, 400)};
  EXPECT_THAT(CheckHang(At(401), facts, {}).message, HasSubstr("all ranks still report"));
  facts.ranks[1] = Computing(10, 300);
  EXPECT_EQ(CheckHang(At(401), facts, {}).rank, 1);
  EXPECT_THAT(CheckHang(At(401), facts, {}).message, HasSubstr("rank 1 has been silent for 101 s"));
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
  EXPECT_THAT(verdict.message, HasSubstr("had not started it when it fell silent 32 s ago"));
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

TEST(RendezvousTest, TheDisagreementNamesTheSourceOfAMixture) {
  records::JobRecord record;
  for (int rank = 0; rank < 2; ++rank) {
    auto& member = *record.add_members();
    member.set_rank(rank);
    auto& joined = *member.mutable_joined();
    joined.set_data_path("data.mixture");
    joined.set_data_fingerprint(7U + static_cast<unsigned>(rank));
    for (const char* name : {"web", "code"}) {
      auto& proof = *joined.add_data_sources();
      proof.set_name(name);
      proof.set_path(absl::StrCat("/corpora/", name));
      proof.set_bytes(100);
      proof.set_fingerprint(0xabc);
    }
  }
  record.mutable_members(1)->mutable_joined()->mutable_data_sources(1)->set_fingerprint(0xdef);
  const auto disagreement = CompareJoined(record.members());
  ASSERT_TRUE(disagreement);
  EXPECT_EQ(disagreement->rank, 1);
  EXPECT_THAT(disagreement->message,
              HasSubstr("reads other data as source 'code': /corpora/code with 100 bytes, "
                        "fingerprint def, but rank 0"));
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

TEST(OptionsTest, WhereJobsAreKeptIsOnePlaceThatIsSafe) {
  Options options;
  StoreOptions store;
  const auto problem = [&] { return std::string(ValidateStoreOptions(store, options).message()); };
  EXPECT_THAT(problem(), HasSubstr("--state-dir is not set"));
  options.state_dir = "/tmp/x";
  EXPECT_EQ(problem(), "");
  store.store = "postgres";
  EXPECT_THAT(problem(), HasSubstr("--store=postgres: want sqlite"));
  store.store = "etcd://127.0.0.1:2379/fsdp";
  EXPECT_THAT(problem(), HasSubstr("--state-dir=/tmp/x and --store=etcd://127.0.0.1:2379/fsdp"));
  options.state_dir.clear();
  EXPECT_EQ(problem(), "");
  store.store = "etcd://127.0.0.1:2379,10.0.0.1:2379";
  EXPECT_THAT(problem(), HasSubstr("10.0.0.1:2379 is another machine"));
  store.tls.ca = "/etc/ca.pem";
  EXPECT_EQ(problem(), "");
  store.tls.key = "/etc/key.pem";
  EXPECT_THAT(problem(), HasSubstr("--etcd-tls-certificate"));
  store.tls = {};
  options.insecure = true;
  EXPECT_EQ(problem(), "");
  store.lease = absl::Milliseconds(2500);
  EXPECT_THAT(problem(), HasSubstr("--leader-lease=2.5s: want whole seconds"));
  store.lease = absl::Seconds(3);
  store.history_bytes = 10;
  EXPECT_THAT(problem(), HasSubstr("--etcd-history-bytes=10: want at least 65536"));
  store.history_bytes = 1 << 20;
  store.advertise = "nowhere";
  EXPECT_THAT(problem(), HasSubstr("--advertise=nowhere: want HOST:PORT"));
}

TEST(OptionsTest, TlsFilesThatNeedEachOtherAreNamedTogether) {
  Options options;
  options.state_dir = "/tmp/x";
  options.tls.key = "/etc/key.pem";
  EXPECT_THAT(std::string(ValidateOptions(options).message()), HasSubstr("add --tls-certificate"));
  options.tls.certificate = "/etc/cert.pem";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.require_client_certificate = true;
  EXPECT_THAT(std::string(ValidateOptions(options).message()), HasSubstr("add --tls-client-ca"));
  options.tls.ca = "/etc/ca.pem";
  EXPECT_TRUE(ValidateOptions(options).ok());
  // Each port asks for itself.
  options.listen = "0.0.0.0:7070";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.metrics_listen = "0.0.0.0:9464";
  EXPECT_EQ(ValidateOptions(options).code(), absl::StatusCode::kFailedPrecondition);
  options.metrics_tls = {.certificate = "/etc/cert.pem", .key = "/etc/key.pem"};
  EXPECT_TRUE(ValidateOptions(options).ok());
}

}  // namespace
}  // namespace fsdp::coordinator

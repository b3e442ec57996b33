// Again, or not: budgets, rules, backoff.

#include "coordinator/lifecycle/retry_policy.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  FailureFacts infrastructure = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  infrastructure.progressed = true;
  infrastructure.counts.set_infrastructure(10);
  EXPECT_FALSE(DecideRetry({}, infrastructure).restart);
  EXPECT_THAT(DecideRetry({}, infrastructure).reason,
              HasSubstr("10 of 10 used, the limit is failurePolicy.maxInfrastructureRestarts"));
  FailureFacts stuck = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  stuck.counts.set_no_progress(3);
  EXPECT_FALSE(DecideRetry({}, stuck).restart);
  EXPECT_THAT(DecideRetry({}, stuck).reason, HasSubstr("no progress in 3 restarts"));
}

// "0 of 0 used" would leave the reader to guess that the spec says so, and where.
TEST(RetryPolicyTest, ABudgetOfNothingNamesItsField) {
  const FailureFacts user = Facts(v1::FAILURE_CAUSE_RANK_FAILED);
  EXPECT_FALSE(DecideRetry({}, user).restart);
  EXPECT_EQ(DecideRetry({}, user).reason,
            "the spec allows no user restarts (failurePolicy.maxUserRestarts is 0)");
  const FailureFacts died = Facts(v1::FAILURE_CAUSE_RANK_DIED);
  v1::FailurePolicy policy;
  policy.set_max_infrastructure_restarts(0);
  EXPECT_EQ(DecideRetry(policy, died).reason,
            "the spec allows no infrastructure restarts "
            "(failurePolicy.maxInfrastructureRestarts is 0)");
  policy.set_max_no_progress_restarts(0);
  EXPECT_EQ(DecideRetry(policy, died).reason,
            "the spec allows no restart without progress "
            "(failurePolicy.maxNoProgressRestarts is 0)");
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
  // Seen: "rules[414]", of two.
  EXPECT_THAT(DecideRetry(policy, facts).reason, HasSubstr("(failurePolicy.rules[1])"));
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

}  // namespace
}  // namespace fsdp::coordinator

#include "coordinator/lifecycle/retry_policy.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/lifecycle/job_state.h"

namespace fsdp::coordinator {
namespace {

constexpr int kDefaultInfrastructure = 10;
constexpr int kDefaultUser = 0;
constexpr int kDefaultNoProgress = 3;
constexpr double kDefaultBackoffInitialSeconds = 1;
constexpr double kDefaultBackoffMaxSeconds = 100;

template <typename List, typename Value>
bool Contains(const List& list, Value value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

absl::Duration Backoff(const v1::FailurePolicy& policy, int restarts_since_progress) {
  if (restarts_since_progress == 0) return absl::ZeroDuration();
  const double initial = policy.has_backoff_initial_seconds() ? policy.backoff_initial_seconds()
                                                              : kDefaultBackoffInitialSeconds;
  const double cap =
      policy.has_backoff_max_seconds() ? policy.backoff_max_seconds() : kDefaultBackoffMaxSeconds;
  double seconds = initial;
  for (int i = 1; i < restarts_since_progress && seconds < cap; ++i) seconds *= 2;
  return absl::Seconds(std::min(seconds, cap));
}

RetryDecision Fail(const FailureFacts& facts, std::string reason) {
  RetryDecision decision;
  decision.counts = facts.counts;
  decision.reason = std::move(reason);
  return decision;
}

// Its index; -1: none matches.
int FirstMatch(const v1::FailurePolicy& policy, const FailureFacts& facts) {
  for (int i = 0; i < policy.rules_size(); ++i) {
    if (RuleMatches(policy.rules(i), facts)) return i;
  }
  return -1;
}

}  // namespace

FailureClass ClassOf(v1::FailureCause cause) {
  switch (cause) {
    case v1::FAILURE_CAUSE_RANK_FAILED:
    case v1::FAILURE_CAUSE_RANKS_DIFFER:
    case v1::FAILURE_CAUSE_NON_FINITE:
    case v1::FAILURE_CAUSE_OUT_OF_MEMORY:
    case v1::FAILURE_CAUSE_CHECKPOINT:
    case v1::FAILURE_CAUSE_DATA:
      return FailureClass::kUser;
    case v1::FAILURE_CAUSE_PREEMPTED:
    case v1::FAILURE_CAUSE_DRAINED:
    case v1::FAILURE_CAUSE_USER_RESTART:
      return FailureClass::kFree;
    default:
      return FailureClass::kInfrastructure;
  }
}

bool RuleMatches(const v1::FailureRule& rule, const FailureFacts& facts) {
  const v1::RootCause& cause = facts.cause;
  if (rule.exit_codes_size() > 0 && !Contains(rule.exit_codes(), cause.exit_code())) return false;
  if (rule.signals_size() > 0 && !Contains(rule.signals(), cause.signal())) return false;
  if (rule.causes_size() > 0 && !Contains(rule.causes(), static_cast<int>(cause.cause()))) {
    return false;
  }
  if (rule.phases_size() > 0 && !Contains(rule.phases(), static_cast<int>(facts.phase))) {
    return false;
  }
  if (rule.log_regex().empty()) return true;
  const re2::RE2 pattern(rule.log_regex(), re2::RE2::Quiet);
  if (!pattern.ok()) return false;
  return std::any_of(
      cause.last_lines().begin(), cause.last_lines().end(),
      [&](const std::string& line) { return re2::RE2::PartialMatch(line, pattern); });
}

RetryDecision DecideRetry(const v1::FailurePolicy& policy, const FailureFacts& facts) {
  if (facts.cause.exit_code() == kNeverRestartExitCode) {
    return Fail(facts, "the trainer exited with code 93: never restarted");
  }
  const int match = FirstMatch(policy, facts);
  const v1::FailureRule* rule = match < 0 ? nullptr : &policy.rules(match);
  const std::string by_rule =
      rule == nullptr ? "" : absl::StrCat(" (failurePolicy.rules[", match, "])");
  if (rule != nullptr && rule->action() == v1::FAILURE_ACTION_FAIL) {
    return Fail(facts, absl::StrCat("a failure rule ends the job", by_rule));
  }

  RetryDecision decision;
  decision.restart = true;
  decision.counts = facts.counts;
  v1::RestartCounts& counts = decision.counts;
  counts.set_no_progress(facts.progressed ? 0 : counts.no_progress() + 1);
  const int max_no_progress = policy.has_max_no_progress_restarts()
                                  ? policy.max_no_progress_restarts()
                                  : kDefaultNoProgress;
  decision.exclude_worker = rule != nullptr && rule->action() == v1::FAILURE_ACTION_EXCLUDE_WORKER;
  decision.backoff = Backoff(policy, facts.progressed ? 0 : facts.restarts_since_progress);

  const FailureClass failure_class = ClassOf(facts.cause.cause());
  if (failure_class == FailureClass::kFree ||
      (rule != nullptr && rule->action() == v1::FAILURE_ACTION_RESTART_FREE)) {
    counts.set_no_progress(facts.counts.no_progress());
    counts.set_free(counts.free() + 1);
    if (failure_class == FailureClass::kFree) decision.backoff = absl::ZeroDuration();
    decision.reason = absl::StrCat("restart without charge", by_rule);
    return decision;
  }
  if (counts.no_progress() > max_no_progress) {
    return Fail(facts, max_no_progress == 0 ? "the spec allows no restart without progress "
                                              "(failurePolicy.maxNoProgressRestarts is 0)"
                                            : absl::StrCat("no progress in ", max_no_progress,
                                                           " restarts in a row"));
  }
  // RESTART and EXCLUDE_WORKER by rule pay from the infrastructure budget whatever the cause.
  const bool user = failure_class == FailureClass::kUser && rule == nullptr;
  const int used = user ? counts.user() : counts.infrastructure();
  const int budget =
      user ? (policy.has_max_user_restarts() ? policy.max_user_restarts() : kDefaultUser)
           : (policy.has_max_infrastructure_restarts() ? policy.max_infrastructure_restarts()
                                                       : kDefaultInfrastructure);
  const std::string kind = user ? "user" : "infrastructure";
  if (used >= budget) {
    const std::string field =
        absl::StrCat("failurePolicy.max", user ? "User" : "Infrastructure", "Restarts");
    return Fail(facts, budget == 0 ? absl::StrCat("the spec allows no ", kind, " restarts (", field,
                                                  " is 0)")
                                   : absl::StrCat("no ", kind, " restarts left (", used, " of ",
                                                  budget, " used, the limit is ", field, ")"));
  }
  if (user) {
    counts.set_user(used + 1);
  } else {
    counts.set_infrastructure(used + 1);
  }
  decision.reason = absl::StrCat(kind, " restart ", used + 1, " of ", budget, by_rule);
  if (decision.backoff > absl::ZeroDuration()) {
    absl::StrAppend(&decision.reason, " in ", absl::FormatDuration(decision.backoff));
  }
  return decision;
}

}  // namespace fsdp::coordinator

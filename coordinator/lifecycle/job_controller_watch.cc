// JobController: membership and deadlines.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/lifecycle/job_controller.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/membership/hang_rule.h"
#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {
namespace {

constexpr std::int64_t kDefaultJoinTimeoutSeconds = 120;
// A kill that was not answered is repeated.
constexpr absl::Duration kKillRepeat = absl::Seconds(10);

}  // namespace

void JobController::OnWorkerLost(const WorkerId& worker, const std::string& incarnation,
                                 std::string_view reason, absl::Duration silent) {
  if (!InEpoch()) return;
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    const records::MemberRecord& lost = member(rank);
    if (lost.worker() != worker.value() || lost.incarnation() != incarnation || lost.released()) {
      continue;
    }
    v1::RootCause cause;
    cause.set_cause(v1::FAILURE_CAUSE_WORKER_LOST);
    cause.set_rank(rank);
    cause.set_worker("workers/" + worker.value());
    cause.set_epoch(job().epoch());
    cause.set_step(status(rank).step());
    cause.set_message(absl::StrCat("rank ", rank, " is lost with its worker ", worker.value(),
                                   lost.host().empty() ? "" : " on " + lost.host(), ": ",
                                   std::string(reason)));
    const bool running = Running();
    Release(rank, v1::RANK_STATE_LOST);
    if (running) {
      effects_.detection = silent;
      Fail({.cause = std::move(cause)});
      continue;
    }
    if (job_.record.intent() == records::STOP_INTENT_UNSPECIFIED &&
        job_.record.ending_cause().cause() == v1::FAILURE_CAUSE_COMMUNICATION) {
      ReplaceCause(std::move(cause));
    }
    MaybeCloseEpoch();
  }
}

bool JobController::OnWorkerBack(int rank, bool running, bool has_unacked) {
  if (member(rank).released()) return false;
  const bool ending = job_.record.phase() == records::EPOCH_PHASE_ENDING;
  if (running) {
    if (ending) {
      const v1::StopMode mode = job_.record.intent() == records::STOP_INTENT_UNSPECIFIED
                                    ? v1::STOP_MODE_KILL
                                    : job_.live[rank].stop_mode;
      SendStop(rank, mode == v1::STOP_MODE_UNSPECIFIED ? v1::STOP_MODE_TERMINATE : mode,
               job_.record.intent_reason());
      return mode != v1::STOP_MODE_KILL;
    }
    // It may have missed the commit while the stream was down; a second one changes nothing.
    if (job_.record.phase() == records::EPOCH_PHASE_LIVE) SendCommit(rank);
    return true;
  }
  // What happened to the rank is in the reports that follow.
  if (has_unacked) return true;
  const bool never_started = status(rank).state() == v1::RANK_STATE_ASSIGNED;
  if (!ending && never_started) {
    SendStart(rank);
    return true;
  }
  Vanished(rank);
  return false;
}

void JobController::OnIdle(int rank) {
  // Between the assignment and the trainer's first report a worker may well look idle.
  const bool starting = status(rank).state() == v1::RANK_STATE_ASSIGNED && Running();
  if (member(rank).released() || starting) return;
  LiveRank& live = job_.live[rank];
  if (!live.idle_since) live.idle_since = now_.mono;
  if (now_.mono - *live.idle_since >= options_.timing.idle_release_after) Vanished(rank);
}

void JobController::Vanished(int rank) {
  Release(rank, v1::RANK_STATE_EXITED);
  if (!Running()) return MaybeCloseEpoch();
  v1::RootCause cause;
  cause.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  cause.set_rank(rank);
  cause.set_worker("workers/" + member(rank).worker());
  cause.set_step(status(rank).step());
  cause.set_message(absl::StrCat("worker ", member(rank).worker(), " no longer runs rank ", rank,
                                 " and did not say why"));
  Fail({.cause = std::move(cause)});
}

void JobController::OnTick() {
  if (!InEpoch()) return;
  CheckJoinDeadline();
  CheckStops();
  CheckRunTime();
  CheckHanging();
  CheckLinger();
}

void JobController::OnStoodStill(absl::Duration pause) {
  // What was heard between waking and noticing is not moved beyond now.
  const auto shift = [&](MonotonicTime& time) { time = std::min(time + pause, now_.mono); };
  shift(job_.placed);
  shift(job_.tokenizing);
  job_.progressed = now_.mono;
  if (job_.first_finish) shift(*job_.first_finish);
  for (LiveRank& live : job_.live) {
    if (live.stop_sent) shift(*live.stop_sent);
    live.idle_since.reset();
    live.pulse_outdated = live.pulse.has_value();
  }
}

void JobController::CheckJoinDeadline() {
  if (job_.record.phase() != records::EPOCH_PHASE_FORMING) return;
  const v1::LimitSpec& limits = job().spec().spec().limits();
  const absl::Duration timeout =
      absl::Seconds(limits.has_join_timeout_seconds() ? limits.join_timeout_seconds()
                                                      : kDefaultJoinTimeoutSeconds);
  // Making tokens takes as long as the text is long, and has a limit of its own.
  if (now_.mono - std::max(job_.placed, job_.tokenizing) < timeout) return;
  std::vector<std::string> missing;
  int first = -1;
  for (const records::MemberRecord& absent : job_.record.members()) {
    if (absent.has_joined()) continue;
    if (first < 0) first = absent.rank();
    missing.push_back(absl::StrCat(absent.rank(), " (", absent.worker(), ")"));
  }
  Blame blame;
  blame.cause.set_cause(v1::FAILURE_CAUSE_JOIN_TIMEOUT);
  blame.cause.set_rank(std::max(first, 0));
  blame.cause.set_worker("workers/" + member(std::max(first, 0)).worker());
  blame.cause.set_message(absl::StrCat(
      missing.size(), " of ", job_.record.members_size(), " ranks had not joined after ",
      absl::FormatDuration(timeout), ": ", absl::StrJoin(missing, ", ")));
  Fail(std::move(blame));
}

void JobController::CheckStops() {
  if (job_.record.phase() != records::EPOCH_PHASE_ENDING) return;
  const absl::Duration patience = Grace() + options_.timing.stop_margin;
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    if (member(rank).released()) continue;
    LiveRank& live = job_.live[rank];
    // After a restart of the coordinator the stop was sent by the one before.
    if (!live.stop_sent) {
      live.stop_sent = now_.mono;
      continue;
    }
    const bool killed = live.stop_mode == v1::STOP_MODE_KILL;
    const bool failing = job_.record.intent() == records::STOP_INTENT_UNSPECIFIED;
    const absl::Duration limit = killed ? kKillRepeat : failing ? absl::Seconds(5) : patience;
    if (now_.mono - *live.stop_sent < limit) continue;
    if (!killed) {
      v1::JobEvent& event = Event("STOP_OVERDUE", v1::EVENT_SEVERITY_WARNING,
                                  absl::StrCat("rank ", rank, " did not stop within ",
                                               absl::FormatDuration(limit), " and is killed"));
      event.set_rank(rank);
    }
    SendStop(rank, v1::STOP_MODE_KILL, "did not stop in time");
  }
}

void JobController::CheckRunTime() {
  const std::int64_t limit = job().spec().spec().limits().max_run_seconds();
  if (limit <= 0 || job_.record.phase() != records::EPOCH_PHASE_LIVE) return;
  const absl::Duration run = absl::Seconds(job_.record.run_seconds()) +
                             (now_.wall - FromTimestamp(job_.record.commit_time()));
  if (run < absl::Seconds(limit)) return;
  const std::string why = absl::StrCat("limits.maxRunSeconds = ", limit, " is used up");
  Event("MAX_RUN_TIME", v1::EVENT_SEVERITY_ERROR, why).set_cause(v1::FAILURE_CAUSE_MAX_RUN_TIME);
  StopFor(records::STOP_INTENT_RUN_TIME, GentleStop(), why);
}

void JobController::CheckHanging() {
  if (job_.record.phase() != records::EPOCH_PHASE_LIVE || job_.first_finish) return;
  HangFacts facts;
  for (const LiveRank& live : job_.live) {
    // It speaks again within a heartbeat; a worker that never does is lost, not hanging.
    if (live.pulse_outdated) return;
    facts.ranks.push_back(live.pulse);
  }
  facts.first_step = job_.first_step;
  facts.progressed = job_.progressed;
  const v1::LimitSpec& limits = job().spec().spec().limits();
  if (limits.has_hang_timeout_seconds()) {
    facts.job_limit = absl::Seconds(limits.hang_timeout_seconds());
  }
  const HangVerdict verdict = CheckHang(now_.mono, facts, options_.hang);
  if (verdict.level == HangLevel::kNone) return;
  const records::MemberRecord& culprit = member(verdict.rank);
  const std::string message =
      absl::StrCat(verdict.message, " (rank ", verdict.rank, " is on ", culprit.worker(),
                   culprit.host().empty() ? "" : ", host " + culprit.host(), ")");
  if (!job_.hang_reported) {
    job_.hang_reported = true;
    v1::JobEvent& event = Event("HANG_SUSPECTED", v1::EVENT_SEVERITY_WARNING, message);
    event.set_rank(verdict.rank);
    event.set_worker(status(verdict.rank).worker());
    // Where people look first. Scores of steps that were say nothing about now.
    job().set_reason(message);
    job_.stragglers.Reset(job_.record.members_size());
    for (v1::RankStatus& of_rank : *job().mutable_ranks()) {
      of_rank.clear_straggler_score();
      of_rank.clear_collective_skew_seconds();
    }
    effects_.job_changed = true;
    for (int rank = 0; rank < job_.record.members_size(); ++rank) {
      Outgoing& out = effects_.at_once.emplace_back();
      out.worker = WorkerId(member(rank).worker());
      out.incarnation = member(rank).incarnation();
      *out.message.mutable_dump_diagnostics()->mutable_key() = Key(rank);
      out.message.mutable_dump_diagnostics()->set_reason(message);
    }
  }
  if (verdict.level != HangLevel::kAbort) return;
  Blame blame;
  blame.cause.set_cause(v1::FAILURE_CAUSE_HANG);
  blame.cause.set_rank(verdict.rank);
  blame.cause.set_worker(status(verdict.rank).worker());
  blame.cause.set_collective(verdict.collective);
  const std::string& stuck = job_.live[verdict.rank].stuck;
  blame.cause.set_message(absl::StrCat(message, stuck.empty() ? "" : "; ", stuck,
                                       job_.collectives_verdict.empty() ? "" : "; ",
                                       job_.collectives_verdict));
  effects_.detection = verdict.pending;
  Fail(std::move(blame));
}

void JobController::ExplainHang(int rank) {
  v1::RootCause& cause = *job_.record.mutable_ending_cause();
  if (job_.record.phase() != records::EPOCH_PHASE_ENDING || cause.rank() != rank ||
      cause.cause() != v1::FAILURE_CAUSE_HANG) {
    return;
  }
  cause.set_message(absl::StrCat(cause.message(), "; ", job_.live[rank].stuck));
  *job().mutable_root_cause() = cause;
  job().set_reason(ReasonWhileEnding());
  effects_.job_changed = true;
}

// The first ranks have finished the job: the rest must follow soon.
void JobController::CheckLinger() {
  if (!job_.first_finish || job_.record.phase() != records::EPOCH_PHASE_LIVE) return;
  const absl::Duration patience = Grace() + options_.timing.stop_margin;
  if (now_.mono - *job_.first_finish < patience) return;
  job_.linger_killed = true;
  job_.record.set_phase(records::EPOCH_PHASE_ENDING);
  v1::RootCause& cause = *job_.record.mutable_ending_cause();
  cause.set_cause(v1::FAILURE_CAUSE_HANG);
  cause.set_message(absl::StrCat("not all ranks ended within ", absl::FormatDuration(patience),
                                 " of the first that finished"));
  Event("LINGERING", v1::EVENT_SEVERITY_WARNING, cause.message());
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    if (!member(rank).released()) SendStop(rank, v1::STOP_MODE_KILL, cause.message());
  }
}

}  // namespace fsdp::coordinator

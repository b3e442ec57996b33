// JobController: how an epoch ends, whose fault it was, and what comes next.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/lifecycle/job_controller.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/lifecycle/retry_policy.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// For a rank that reported its own failure: time to write its last lines.
constexpr double kFailingRankGraceSeconds = 2;

// The worker's own doing, and nothing that the trainer did wrong meanwhile.
bool StoppedByWorker(const v1::RankExited& exited) {
  if (exited.worker_stop_reason().empty() || exited.finished()) return false;
  return exited.signal() != 0 ? exited.signalled_by_worker() : exited.exit_code() == 0;
}

}  // namespace

void JobController::Fail(Blame blame) {
  if (!Running()) return;
  job_.record.set_phase(records::EPOCH_PHASE_ENDING);
  blame.cause.set_epoch(job().epoch());
  if (blame.cause.step() == 0) blame.cause.set_step(job().progress().step());
  *job_.record.mutable_ending_cause() = blame.cause;
  job_.failed_at = now_.mono;
  *job().mutable_root_cause() = blame.cause;
  // A recovery that will not come is not announced.
  const bool retried = IsRetried(blame.cause);
  if (retried) {
    job().set_cause(blame.cause.cause());
    SetState(v1::JOB_STATE_RECOVERING, blame.cause.message());
  }
  job().set_reason(ReasonWhileEnding());
  v1::JobEvent& event = ReportedEvent(CauseName(blame.cause.cause()), v1::EVENT_SEVERITY_ERROR,
                                      blame.cause.message());
  event.set_cause(blame.cause.cause());
  event.set_rank(blame.cause.rank());
  event.set_worker(blame.cause.worker());
  if (retried) event.set_state(v1::JOB_STATE_RECOVERING);
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    if (member(rank).released()) continue;
    const bool origin = rank == blame.origin;
    SendStop(rank, origin ? v1::STOP_MODE_TERMINATE : blame.mode, blame.cause.message());
    if (origin) {
      effects_.at_once.back().message.mutable_stop_rank()->set_grace_seconds(
          kFailingRankGraceSeconds);
    }
  }
  MaybeCloseEpoch();
}

void JobController::StopFor(records::StopIntent intent, v1::StopMode mode,
                            std::string_view reason) {
  // A stop that is already under way by a failure goes on as a kill; only what follows changes.
  const bool ending = job_.record.phase() == records::EPOCH_PHASE_ENDING;
  const bool stronger =
      job_.record.intent() != records::STOP_INTENT_UNSPECIFIED && mode > v1::STOP_MODE_DRAIN;
  job_.record.set_intent(intent);
  job_.record.set_intent_reason(std::string(reason));
  job_.record.set_phase(records::EPOCH_PHASE_ENDING);
  effects_.job_changed = true;
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    if (member(rank).released() || (ending && !stronger)) continue;
    SendStop(rank, mode, reason);
  }
  MaybeCloseEpoch();
}

v1::RootCause JobController::CauseOfExit(int rank, const v1::RankExited& exited) {
  v1::RootCause cause;
  cause.set_rank(rank);
  cause.set_worker("workers/" + member(rank).worker());
  cause.set_epoch(job().epoch());
  cause.set_step(exited.last_step());
  cause.set_exit_code(exited.exit_code());
  cause.set_signal(exited.signal());
  *cause.mutable_last_lines() = exited.last_lines();
  const std::optional<v1::RankFailure>& failure = job_.live[rank].failure;
  const std::string who = absl::StrCat("rank ", rank, " on ", member(rank).worker());
  if (StoppedByWorker(exited)) {
    cause.set_cause(v1::FAILURE_CAUSE_DRAINED);
    cause.set_message(absl::StrCat(who, " was stopped by its worker after step ",
                                   exited.last_step(), ": ", exited.worker_stop_reason()));
  } else if (failure && exited.signal() == 0) {
    cause.set_cause(failure->cause());
    cause.set_collective(failure->collective());
    cause.set_message(absl::StrCat(who, ": ", failure->message()));
  } else if (exited.signal() != 0) {
    cause.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
    cause.set_message(absl::StrCat(who, " was ended by signal ", exited.signal(),
                                   exited.signal() == 9 ? " (SIGKILL: the kernel's out-of-memory "
                                                          "killer, or somebody)"
                                                        : "",
                                   " after step ", exited.last_step()));
  } else if (exited.exit_code() != 0) {
    cause.set_cause(v1::FAILURE_CAUSE_RANK_FAILED);
    cause.set_message(absl::StrCat(
        who, " exited with code ", exited.exit_code(), " after step ", exited.last_step(),
        exited.last_lines_size() > 0 ? ": " + exited.last_lines(exited.last_lines_size() - 1)
                                     : std::string()));
  } else {
    cause.set_cause(v1::FAILURE_CAUSE_ORPHANED);
    cause.set_message(absl::StrCat(who, " stopped by itself after step ", exited.last_step(),
                                   " although nobody had asked it to"));
  }
  return cause;
}

void JobController::RefineCause(int rank, const v1::RankExited& exited) {
  if (job_.record.intent() != records::STOP_INTENT_UNSPECIFIED) return;
  v1::RootCause& cause = *job_.record.mutable_ending_cause();
  const bool of_peers = cause.cause() == v1::FAILURE_CAUSE_COMMUNICATION;
  // Its peers stopped with it, or lost it.
  if (StoppedByWorker(exited) && (of_peers || cause.cause() == v1::FAILURE_CAUSE_ORPHANED)) {
    return ReplaceCause(CauseOfExit(rank, exited));
  }
  const bool killed_by_us =
      (exited.signal() == 9 || exited.signal() == 15) && exited.signalled_by_worker();
  const std::optional<v1::RankFailure>& failure = job_.live[rank].failure;
  const bool saw_peer_only = failure && failure->cause() == v1::FAILURE_CAUSE_COMMUNICATION;
  // A rank may crash over a peer that it lost, but that kills nobody with SIGKILL.
  const bool own_death =
      !killed_by_us && (exited.signal() == 9 ||
                        ((exited.signal() != 0 || exited.exit_code() != 0) && !saw_peer_only));
  if (of_peers && own_death) {
    return ReplaceCause(CauseOfExit(rank, exited));
  }
  if (cause.rank() == rank && cause.last_lines_size() == 0) {
    *cause.mutable_last_lines() = exited.last_lines();
    if (!killed_by_us) {
      cause.set_exit_code(exited.exit_code());
      cause.set_signal(exited.signal());
    }
  }
  *job().mutable_root_cause() = cause;
}

std::string JobController::ReasonWhileEnding() const {
  const bool recovers = job_.job().state() == v1::JOB_STATE_RECOVERING;
  return absl::StrCat(job_.job().root_cause().message(),
                      recovers ? "" : "; it is not retried: the job fails when all ranks are gone");
}

void JobController::ReplaceCause(v1::RootCause cause) {
  if (job().state() == v1::JOB_STATE_RECOVERING) job().set_cause(cause.cause());
  *job().mutable_root_cause() = cause;
  job().set_reason(ReasonWhileEnding());
  v1::JobEvent& event =
      ReportedEvent(CauseName(cause.cause()), v1::EVENT_SEVERITY_ERROR, cause.message());
  event.set_cause(cause.cause());
  event.set_rank(cause.rank());
  event.set_worker(cause.worker());
  *job_.record.mutable_ending_cause() = std::move(cause);
}

void JobController::Release(int rank, v1::RankState state) {
  member(rank).set_released(true);
  status(rank).set_state(state);
  effects_.job_changed = true;
  effects_.reschedule = true;
}

void JobController::MaybeCloseEpoch() {
  if (job_.record.phase() == records::EPOCH_PHASE_ENDING && AllReleased()) CloseEpoch();
}

void JobController::CloseAttempt(v1::AttemptState state) {
  v1::Attempt& last = attempt();
  last.set_state(state);
  *last.mutable_end_time() = ToTimestamp(now_.wall);
  *last.mutable_ranks() = job().ranks();
  effects_.attempt_changed = true;
  if (job_.record.has_commit_time()) {
    job_.record.set_run_seconds(
        job_.record.run_seconds() +
        absl::ToDoubleSeconds(now_.wall - FromTimestamp(job_.record.commit_time())));
  }
  job_.record.set_phase(records::EPOCH_PHASE_UNSPECIFIED);
  job_.rendezvous.Clear();
  effects_.rendezvous_cleared = true;
  effects_.reschedule = true;
}

void JobController::CloseEpoch() {
  const records::StopIntent intent = job_.record.intent();
  const std::string why = job_.record.intent_reason();
  job_.record.clear_intent();
  job_.record.clear_intent_reason();
  const bool finished = AllFinished() || (job_.linger_killed && member(0).exited().finished());
  if (finished && intent != records::STOP_INTENT_CANCEL) return Succeed();
  switch (intent) {
    case records::STOP_INTENT_CANCEL:
      CloseAttempt(v1::ATTEMPT_STATE_STOPPED);
      SetState(v1::JOB_STATE_CANCELLED, why);
      Event("CANCELLED", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_CANCELLED);
      return;
    case records::STOP_INTENT_SUSPEND:
      CloseAttempt(v1::ATTEMPT_STATE_STOPPED);
      SetState(v1::JOB_STATE_SUSPENDED, why);
      Event("SUSPENDED", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_SUSPENDED);
      return;
    case records::STOP_INTENT_RUN_TIME:
      CloseAttempt(v1::ATTEMPT_STATE_STOPPED);
      job().set_cause(v1::FAILURE_CAUSE_MAX_RUN_TIME);
      SetState(v1::JOB_STATE_FAILED, why);
      Event("FAILED", v1::EVENT_SEVERITY_ERROR, why).set_state(v1::JOB_STATE_FAILED);
      return;
    case records::STOP_INTENT_RESTART:
      return ComeBackFree(v1::FAILURE_CAUSE_USER_RESTART, why);
    case records::STOP_INTENT_DRAIN:
      return ComeBackFree(v1::FAILURE_CAUSE_DRAINED, why);
    case records::STOP_INTENT_PREEMPT:
      job().mutable_restarts()->set_preemptions(job().restarts().preemptions() + 1);
      return ComeBackFree(v1::FAILURE_CAUSE_PREEMPTED, why);
    case records::STOP_INTENT_GROW:
      ComeBackFree(v1::FAILURE_CAUSE_UNSPECIFIED, why);
      // What it can have is known: should less have stayed, it goes on with that.
      *job_.record.mutable_full_size_until() = ToTimestamp(now_.wall);
      return;
    default:
      return AfterFailure();
  }
}

void JobController::ComeBackFree(v1::FailureCause cause, const std::string& why) {
  CloseAttempt(v1::ATTEMPT_STATE_STOPPED);
  job().set_cause(cause);
  attempt().set_cause(cause);
  job().mutable_restarts()->set_free(job().restarts().free() + 1);
  if (cause != v1::FAILURE_CAUSE_UNSPECIFIED) effects_.restart_cause = cause;
  SetState(v1::JOB_STATE_RECOVERING, why);
  Event("RESTARTING", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_RECOVERING);
}

FailureFacts JobController::FactsOf(const v1::RootCause& cause) const {
  FailureFacts facts;
  facts.cause = cause;
  if (cause.rank() < static_cast<int>(job_.live.size())) {
    const LiveRank& live = job_.live[cause.rank()];
    facts.phase = live.failure ? live.failure->phase()
                               : (live.pulse ? live.pulse->pulse.phase() : v1::PHASE_UNSPECIFIED);
  }
  // A rank that died before it told its phase.
  if (facts.phase == v1::PHASE_UNSPECIFIED) {
    facts.phase = job_.record.has_commit_time() ? v1::PHASE_TRAIN : v1::PHASE_START;
  }
  facts.progressed = Reached() > job_.record.progress_mark();
  facts.counts = job_.job().restarts();
  facts.restarts_since_progress = job_.record.restarts_since_progress();
  return facts;
}

std::int64_t JobController::Reached() const {
  return std::max(job_.attempts.back().last_step(), job_.job().checkpoint().step());
}

bool JobController::IsRetried(const v1::RootCause& cause) const {
  return CheckpointUnusable(cause) ||
         DecideRetry(job_.job().spec().spec().failure_policy(), FactsOf(cause)).restart;
}

void JobController::AfterFailure() {
  const v1::RootCause cause = job_.record.ending_cause();
  CloseAttempt(v1::ATTEMPT_STATE_FAILED);
  job().set_cause(cause.cause());
  *job().mutable_root_cause() = cause;
  attempt().set_cause(cause.cause());
  *attempt().mutable_root_cause() = cause;

  const FailureFacts facts = FactsOf(cause);
  const std::int64_t reached = Reached();
  RetryDecision decision = DecideRetry(job().spec().spec().failure_policy(), facts);
  if (CheckpointUnusable(cause)) {
    const auto before = job_.checkpoints.rbegin() + 1;
    GiveUpNewestCheckpoint(absl::StrCat("cannot be loaded (", cause.message(), ")"),
                           before == job_.checkpoints.rend() ? 0 : before->step());
    decision.restart = true;
    decision.counts = facts.counts;
    decision.reason = job().has_checkpoint() ? "restart from the checkpoint before"
                                             : "restart from the beginning";
  } else if (!decision.restart && CheckpointDamaged(cause)) {
    decision.reason =
        "no other checkpoint of the job is left to go back to: put the file back from a copy and "
        "restart the job, or submit it anew, from another checkpoint with checkpoint.resumeFrom";
  }
  job_.record.set_progress_mark(std::max(job_.record.progress_mark(), reached));
  job_.record.set_restarts_since_progress(
      facts.progressed ? 1 : job_.record.restarts_since_progress() + 1);
  if (!decision.restart) {
    const std::string reason = absl::StrCat(cause.message(), "; ", decision.reason);
    SetState(v1::JOB_STATE_FAILED, reason);
    v1::JobEvent& event = Event("FAILED", v1::EVENT_SEVERITY_ERROR, reason);
    event.set_state(v1::JOB_STATE_FAILED);
    event.set_cause(cause.cause());
    job_.failed_at.reset();
    return;
  }
  *job().mutable_restarts() = decision.counts;
  if (decision.exclude_worker) {
    job_.record.add_excluded_workers(WorkerIdFromName(cause.worker()).value());
  }
  if (decision.backoff > absl::ZeroDuration()) {
    *job_.record.mutable_earliest_start() = ToTimestamp(now_.wall + decision.backoff);
  }
  effects_.restart_cause = cause.cause();
  SetState(v1::JOB_STATE_RECOVERING, absl::StrCat(cause.message(), "; ", decision.reason));
  Event("RESTARTING", v1::EVENT_SEVERITY_WARNING, decision.reason)
      .set_state(v1::JOB_STATE_RECOVERING);
}

bool JobController::CheckpointDamaged(const v1::RootCause& cause) const {
  if (cause.cause() != v1::FAILURE_CAUSE_CHECKPOINT || job_.attempts.back().last_step() != 0 ||
      cause.rank() >= static_cast<int>(job_.live.size())) {
    return false;
  }
  const std::optional<v1::RankFailure>& failure = job_.live[cause.rank()].failure;
  return failure && failure->checkpoint_damaged();
}

// The newest checkpoint is given up for the one before when
// - a rank found it damaged, its manifest or a shard,
// - rank 0 died between the manifest's admission and its rename, so that the record is ahead of the
//   disk, or
// - the ranks agreed on everything else and then could not load it, such as for a missing shard.
// Whatever else is wrong before the commit (no such folder, other data) is no checkpoint's fault.
// Nothing begins from the start behind the user's back; but a job whose only checkpoint was never
// written had none.
bool JobController::CheckpointUnusable(const v1::RootCause& cause) const {
  if (cause.cause() != v1::FAILURE_CAUSE_CHECKPOINT || job_.checkpoints.empty()) return false;
  const bool damaged = CheckpointDamaged(cause);
  const bool newest_unconfirmed =
      !job_.record.has_commit_time() && !IsConfirmed(job_.checkpoints.back().step());
  const bool not_loaded = job_.record.has_commit_time() && job_.attempts.back().last_step() == 0;
  const bool last_one = job_.checkpoints.size() == 1;
  return (newest_unconfirmed || not_loaded || damaged) &&
         (!last_one || (newest_unconfirmed && damaged));
}

void JobController::GiveUpUnwritten(std::int64_t resume_step) {
  while (!job_.checkpoints.empty() && job_.checkpoints.back().step() > resume_step &&
         !IsConfirmed(job_.checkpoints.back().step())) {
    GiveUpNewestCheckpoint("was never written (the rank that was to do it ended before)",
                           resume_step);
  }
}

void JobController::GiveUpNewestCheckpoint(std::string_view why, std::int64_t back_to) {
  const std::int64_t given_up = job_.checkpoints.back().step();
  job_.checkpoints.pop_back();
  effects_.dropped_checkpoints.push_back(given_up);
  auto& unconfirmed = *job_.record.mutable_unconfirmed_checkpoints();
  unconfirmed.erase(std::remove(unconfirmed.begin(), unconfirmed.end(), given_up),
                    unconfirmed.end());
  if (job_.checkpoints.empty()) {
    job().clear_checkpoint();
  } else {
    *job().mutable_checkpoint() = job_.checkpoints.back();
  }
  const std::string target = job().has_checkpoint()
                                 ? absl::StrCat("step ", back_to)
                                 : "where the job began, since no other was written";
  Event("CHECKPOINT_DROPPED", v1::EVENT_SEVERITY_WARNING,
        absl::StrCat("the checkpoint of step ", given_up, " ", ToAbsl(why), "; going back to ",
                     target))
      .set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
}

std::string JobController::SuccessReason() {
  const std::int64_t last = member(0).exited().last_step();
  const v1::RankJoined& joined = member(0).joined();
  // A checkpoint of this job itself had only to be finished.
  const bool trained = joined.resume_step() < last || job().progress().step() > 0;
  if (trained) return absl::StrCat("finished after step ", last);
  const std::int64_t max_steps = job().spec().spec().limits().max_steps();
  return absl::StrCat("nothing left to train: the checkpoint is at step ", last, ", ",
                      max_steps > 0
                          ? absl::StrCat("limits.maxSteps is ", max_steps)
                          : absl::StrCat("the limits end the job at step ", joined.total_steps()));
}

void JobController::Succeed() {
  v1::JobResult result = member(0).exited().result();
  if (result.steps() == 0) result.set_steps(member(0).exited().last_step());
  const v1::RankJoined& joined = member(0).joined();
  if (joined.has_unigram_entropy() && !result.has_unigram_entropy()) {
    result.set_unigram_entropy(joined.unigram_entropy());
  }
  if (joined.has_bigram_conditional_entropy() && !result.has_bigram_conditional_entropy()) {
    result.set_bigram_conditional_entropy(joined.bigram_conditional_entropy());
  }
  if (result.families().empty()) {
    *result.mutable_families() = job().families();
  }
  const bool by_rank = result.memory_peak_bytes_by_rank().empty();
  for (const v1::RankStatus& rank : job().ranks()) {
    if (by_rank) result.add_memory_peak_bytes_by_rank(rank.memory_peak_bytes());
    result.set_memory_peak_bytes(std::max(result.memory_peak_bytes(), rank.memory_peak_bytes()));
  }
  *job().mutable_result() = std::move(result);
  if (attempt().last_step() < member(0).exited().last_step()) {
    attempt().set_last_step(member(0).exited().last_step());
  }
  CloseAttempt(v1::ATTEMPT_STATE_SUCCEEDED);
  const std::string reason = SuccessReason();
  v1::Progress& progress = *job().mutable_progress();
  progress.clear_eta_seconds();
  if (progress.step() < member(0).exited().last_step()) {
    progress.set_step(member(0).exited().last_step());
    progress.set_loss(job().result().train_loss());
  }
  SetState(v1::JOB_STATE_SUCCEEDED, reason);
  Event("SUCCEEDED", v1::EVENT_SEVERITY_INFO, reason).set_state(v1::JOB_STATE_SUCCEEDED);
}

}  // namespace fsdp::coordinator

#ifndef FSDPCTL_COORDINATOR_LIFECYCLE_JOB_CONTROLLER_H_
#define FSDPCTL_COORDINATOR_LIFECYCLE_JOB_CONTROLLER_H_

// The life of one job: an event in, a transition and its effects out. No I/O, no clock, no locks:
// the caller holds the job, gives the time and carries out the effects.
//
// An epoch goes FORMING (ranks assigned) -> LIVE (all joined, committed) -> ENDING (told to stop)
// -> none (every worker released). What comes next is decided only then, so that a root cause which
// arrives late still counts and no two epochs are alive at once.
//
// Callers check the EpochKey first: reports that reach this class belong to the job's current
// epoch.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/config/options.h"
#include "coordinator/lifecycle/job_runtime.h"
#include "coordinator/lifecycle/retry_policy.h"
#include "coordinator/queue/job_array.h"

namespace fsdp::coordinator {

// A daemon's notice when it was asked why a rank hangs and finds that its process cannot run.
inline constexpr char kTrainerStuck[] = "TRAINER_STUCK";

class JobController {
 public:
  // All arguments outlive the controller, which lives for one event.
  JobController(JobRuntime& job, const Options& options, TimePoint now, Effects& effects);

  // --- Verbs. FAILED_PRECONDITION: the job's state does not allow it (the message says which).
  void Enqueue();
  absl::Status Cancel(std::string_view reason);
  absl::Status Suspend(std::string_view reason);
  absl::Status Resume();
  absl::Status Restart(std::string_view reason);
  // The worker is being drained: a rank of this job on it moves with a checkpoint.
  void Drain(const WorkerId& worker, std::string_view reason);
  // The worker's daemon is ending: the same.
  void OnWorkerShutdown(const WorkerId& worker, std::string_view reason);

  // Another job needs its workers: it saves, stops and waits in its queue again, at its place.
  // `grace`: from being told to being killed; absent: the job's own.
  void Preempt(std::string_view why, std::optional<absl::Duration> grace);

  // --- Scheduling
  [[nodiscard]] bool WantsPlacement() const;
  // Will want placement without anybody's doing: its epoch is being torn down for another one, or
  // it waits out its backoff. A job that is being cancelled or suspended will not, and one that is
  // preempted not before its workers are another's.
  [[nodiscard]] bool ComesBack() const;
  void Wait(const std::string& reason, std::int32_t queue_position);
  // Begins a new epoch on these workers, by rank.
  void Place(const std::vector<records::MemberRecord>& members);
  // Workers that nobody else gets while it runs or comes back, in place of those before.
  void HoldSpares(const std::vector<WorkerId>& spares);
  // It can have so many ranks, and is to from its next checkpoint on; 0: as many as it has.
  void PlanGrowth(int ranks);

  // --- Arrays: of the job that is one.
  // A task has changed its state.
  void OnTasks(const ArraySummary& summary);
  void OnTaskEnded(const v1::Job& task);

  // --- Reports of ranks
  // When the rank made the report that follows, by the coordinator's wall clock: its events carry
  // that time, however late the report is delivered. Without this it is now.
  void SetReportTime(absl::Time time);
  void OnJoined(int rank, const v1::RankJoined& joined);
  void OnRunning(int rank, const v1::RankRunning& running);
  void OnStep(int rank, const v1::StepReport& report);
  void OnManifest(int rank, const v1::ManifestProposal& proposal);
  void OnPublished(int rank, const v1::CheckpointPublished& published);
  void OnExited(int rank, const v1::RankExited& exited);
  void OnFailure(int rank, const v1::RankFailure& failure);
  void OnNotice(int rank, const v1::RankNotice& notice);
  void OnDump(int rank, const v1::CollectiveDump& dump);
  void OnPulse(int rank, const v1::RankPulse& pulse);
  // A heartbeat says that the worker runs nothing. Believed when it stays so: the report that says
  // why may be on its way.
  void OnIdle(int rank);
  void OnPut(int rank, const v1::RendezvousPut& put);
  void OnGet(int rank, const v1::RendezvousGet& get);

  // --- Membership
  void OnWorkerLost(const WorkerId& worker, const std::string& incarnation, std::string_view reason,
                    absl::Duration silent);
  // The worker (re)connected in the same life. `running`: it has this epoch's rank; `has_unacked`:
  // reports are still in its spool. Returns whether the rank may go on.
  bool OnWorkerBack(int rank, bool running, bool has_unacked);

  // Deadlines: join, stop, run time, hangs.
  void OnTick();
  // The coordinator itself did nothing for `pause`: no deadline but the user's run time goes on
  // for that, and no rank is judged by what it said before. Has no effects.
  void OnStoodStill(absl::Duration pause);

 private:
  struct Blame {
    v1::RootCause cause;
    // May still finish by itself, so that its last lines are not lost.
    int origin = -1;
    // How the others end.
    v1::StopMode mode = v1::STOP_MODE_KILL;
  };

  v1::Job& job() { return job_.mutable_job(); }
  records::MemberRecord& member(int rank) { return *job_.record.mutable_members(rank); }
  v1::RankStatus& status(int rank) { return *job().mutable_ranks(rank); }
  [[nodiscard]] bool InEpoch() const;
  [[nodiscard]] bool Running() const;
  [[nodiscard]] bool AllReleased() const;
  [[nodiscard]] bool AllFinished() const;

  void SetState(v1::JobState state, std::string_view reason);
  v1::JobEvent& Event(std::string_view type, v1::EventSeverity severity, std::string message);
  // Of what a rank went through, not of what is decided now.
  v1::JobEvent& ReportedEvent(std::string_view type, v1::EventSeverity severity,
                              std::string message);
  v1::Attempt& attempt() { return job_.attempts.back(); }

  void SendStart(int rank);
  void AddResume(v1::StartRank* start) const;
  void Commit();
  void SendCommit(int rank);
  void SendStop(int rank, v1::StopMode mode, std::string_view reason);
  void SendVerdict(int rank, std::int64_t step, bool admitted, std::string reason);
  v1::EpochKey Key(int rank) const;

  // Ends the epoch because of a failure: everybody is killed at once.
  void Fail(Blame blame);
  // Ends the epoch because somebody wants it.
  void StopFor(records::StopIntent intent, v1::StopMode mode, std::string_view reason);
  void MoveFrom(const WorkerId& worker, std::string_view why);
  // The epoch is about to end early: tells what no checkpoint keeps, if nothing can.
  void WarnOfLostProgress();
  void Vanished(int rank);
  [[nodiscard]] std::string ReasonWhileEnding() const;
  // The reason of a job that trains: on how many ranks, which others it may have, its spares.
  [[nodiscard]] std::string RunsOn() const;
  void TellRunsOn();
  // Of an epoch with another number of ranks than the last one's.
  void TellRankChange(int before);
  // A checkpoint of `step` was admitted: saves after the step that it is in and comes back with
  // more ranks, if that is planned.
  void GrowAfter(std::int64_t step);
  // A rank that keeps all others waiting gives its place to a spare.
  void ReplaceStraggler();
  // Better evidence of why the epoch ends than what began its end.
  void ReplaceCause(v1::RootCause cause);
  void RefineCause(int rank, const v1::RankExited& exited);
  void Release(int rank, v1::RankState state);
  void MaybeCloseEpoch();
  void CloseEpoch();
  void CloseAttempt(v1::AttemptState state);
  // The epoch was ended by intent, and another one follows at no cost.
  void ComeBackFree(v1::FailureCause cause, const std::string& why);
  void Succeed();
  // What the user reads of a job that ended well.
  std::string SuccessReason();
  void AfterFailure();
  // The furthest step that need not be trained again, or was trained in this attempt.
  [[nodiscard]] std::int64_t Reached() const;
  [[nodiscard]] FailureFacts FactsOf(const v1::RootCause& cause) const;
  // As far as is known now, another epoch follows.
  [[nodiscard]] bool IsRetried(const v1::RootCause& cause) const;
  // Why the rank cannot run came only after the epoch was aborted for it.
  void ExplainHang(int rank);
  // Once every rank has told its collectives, or cannot.
  void CompareDumps();
  // The failure was that of a rank which found the checkpoint to resume from damaged.
  [[nodiscard]] bool CheckpointDamaged(const v1::RootCause& cause) const;
  // The newest checkpoint is no good, and there is something else to start from.
  [[nodiscard]] bool CheckpointUnusable(const v1::RootCause& cause) const;
  // The ranks found no manifest for what is newer than the step that they resume from.
  void GiveUpUnwritten(std::int64_t resume_step);
  void GiveUpNewestCheckpoint(std::string_view why, std::int64_t back_to);
  // It has been seen on disk. So have earlier ones: manifests are published in the order of steps.
  void ConfirmCheckpoint(std::int64_t step);
  [[nodiscard]] bool IsConfirmed(std::int64_t step) const;
  void KeepNewestCheckpoints();
  std::string LossSentence(int rank, int peer, const v1::RankFailure& failure);
  v1::RootCause CauseOfExit(int rank, const v1::RankExited& exited);
  void UpdateProgress(const v1::StepMetrics& metrics);
  v1::StopMode GentleStop() const;
  // limits.grace_period_seconds, or its default; while it is preempted, what its queue gives; less
  // for ranks that stand still, which could not save anyway.
  [[nodiscard]] absl::Duration Grace() const;

  void CheckJoinDeadline();
  void CheckStops();
  void CheckRunTime();
  void CheckHanging();
  void CheckLinger();

  JobRuntime& job_;
  const Options& options_;
  const TimePoint now_;
  absl::Time happened_;
  Effects& effects_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_LIFECYCLE_JOB_CONTROLLER_H_

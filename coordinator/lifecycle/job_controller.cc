#include "coordinator/lifecycle/job_controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/plan/plan.h"

namespace fsdp::coordinator {
namespace {

constexpr std::int64_t kDefaultGraceSeconds = 60;
// Ranks that stand still answer nobody. Time to save, should they go on just then.
constexpr absl::Duration kHangingGrace = absl::Seconds(10);

std::string OrDefault(std::string_view text, std::string_view otherwise) {
  return std::string(text.empty() ? otherwise : text);
}

// `remedy`: what to do instead, empty when there is nothing.
absl::Status WrongState(const v1::Job& job, std::string_view verb, std::string_view remedy = "") {
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(job.name(), " is ", StateName(job.state()),
                                                 ": it cannot be ", ToAbsl(verb),
                                                 remedy.empty() ? "" : "; ", ToAbsl(remedy))),
      "JOB_STATE_CONFLICT",
      {{"job", job.name()}, {"state", StateName(job.state())}, {"wanted", std::string(verb)}});
}

// What a job that is stopped or has ended wants in place of a suspend or a cancel.
std::string_view InsteadOfStop(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUSPENDED:
      return "it is stopped already: resume it to go on";
    case v1::JOB_STATE_CANCELLING:
      return "it is being stopped for good: restart it once it is CANCELLED";
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_CANCELLED:
      return "it has ended: restart it for another try";
    default:
      return "it has ended, and has nothing left to do";
  }
}

// Resume takes a suspend back; restart is for what runs or has ended without success.
std::string_view InsteadOfResume(v1::JobState state, records::StopIntent intent) {
  if (intent == records::STOP_INTENT_SUSPEND) {
    return "it is being suspended: resume it once it is SUSPENDED";
  }
  switch (state) {
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_CANCELLED:
      return "only a suspended job is resumed: restart this one";
    case v1::JOB_STATE_SUCCEEDED:
      return "it has nothing left to do: submit another job";
    case v1::JOB_STATE_CANCELLING:
      return "restart it once it is CANCELLED";
    default:
      return "only a suspended job is resumed";
  }
}

std::string_view InsteadOfRestart(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUSPENDED:
      return "resume it";
    case v1::JOB_STATE_QUEUED:
      return "it waits to be started anyway";
    case v1::JOB_STATE_SUCCEEDED:
      return "it has nothing left to do: submit another job";
    case v1::JOB_STATE_CANCELLING:
      return "restart it once it is CANCELLED";
    default:
      return "its epoch is being stopped already";
  }
}

}  // namespace

JobController::JobController(JobRuntime& job, const Options& options, TimePoint now,
                             Effects& effects)
    : job_(job), options_(options), now_(now), happened_(now.wall), effects_(effects) {}

void JobController::SetReportTime(absl::Time time) {
  const absl::Time placed = FromTimestamp(job_.record.placed_time());
  happened_ = std::min(std::max(time, placed), now_.wall);
}

absl::Duration JobController::Grace() const {
  const v1::LimitSpec& limits = job_.job().spec().spec().limits();
  std::int64_t seconds =
      limits.has_grace_period_seconds() ? limits.grace_period_seconds() : kDefaultGraceSeconds;
  if (job_.record.intent() == records::STOP_INTENT_PREEMPT &&
      job_.record.has_preempt_grace_seconds()) {
    seconds = job_.record.preempt_grace_seconds();
  }
  const absl::Duration grace = absl::Seconds(seconds);
  return job_.hang_reported ? std::min(grace, kHangingGrace) : grace;
}

bool JobController::InEpoch() const {
  return job_.record.phase() != records::EPOCH_PHASE_UNSPECIFIED;
}

bool JobController::Running() const {
  return job_.record.phase() == records::EPOCH_PHASE_FORMING ||
         job_.record.phase() == records::EPOCH_PHASE_LIVE;
}

bool JobController::AllReleased() const {
  return std::all_of(job_.record.members().begin(), job_.record.members().end(),
                     [](const auto& member) { return member.released(); });
}

bool JobController::AllFinished() const {
  return std::all_of(job_.record.members().begin(), job_.record.members().end(),
                     [](const auto& member) { return member.exited().finished(); });
}

v1::EpochKey JobController::Key(int rank) const {
  v1::EpochKey key;
  key.set_job(job_.job().name());
  key.set_attempt(job_.job().attempt());
  key.set_epoch(job_.job().epoch());
  key.set_rank(rank);
  return key;
}

v1::JobEvent& JobController::Event(std::string_view type, v1::EventSeverity severity,
                                   std::string message) {
  v1::JobEvent& event = effects_.events.emplace_back();
  job_.record.set_event_count(job_.record.event_count() + 1);
  event.set_sequence(job_.record.event_count());
  event.set_job(job().name());
  *event.mutable_time() = ToTimestamp(now_.wall);
  event.set_severity(severity);
  event.set_type(std::string(type));
  event.set_message(std::move(message));
  event.set_attempt(job().attempt());
  event.set_epoch(job().epoch());
  event.set_step(job().progress().step());
  effects_.job_changed = true;
  return event;
}

v1::JobEvent& JobController::ReportedEvent(std::string_view type, v1::EventSeverity severity,
                                           std::string message) {
  v1::JobEvent& event = Event(type, severity, std::move(message));
  *event.mutable_time() = ToTimestamp(happened_);
  return event;
}

void JobController::SetState(v1::JobState state, std::string_view reason) {
  effects_.job_changed = true;
  if (job().state() == state) {
    job().set_reason(std::string(reason));
    return;
  }
  if (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_RECOVERING) {
    *job_.record.mutable_queued_time() = ToTimestamp(now_.wall);
    *job_.record.mutable_full_size_until() = ToTimestamp(now_.wall + options_.timing.shrink_after);
  }
  const bool keeps_spares = state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RUNNING ||
                            state == v1::JOB_STATE_RECOVERING;
  if (!keeps_spares) HoldSpares({});
  const absl::Status status = Transition(job(), state, reason, now_.wall);
  // Verbs ask the table first; everything else follows it by construction.
  FSDP_CHECK(status.ok(), status.message());
}

// -----------------------------------------------------------------------------------------------
// Verbs

void JobController::Enqueue() {
  SetState(v1::JOB_STATE_QUEUED, "waits to be scheduled");
  Event("QUEUED", v1::EVENT_SEVERITY_INFO,
        absl::StrCat("accepted into queue '", job().spec().spec().queue(), "' with priority ",
                     job().spec().spec().priority()))
      .set_state(v1::JOB_STATE_QUEUED);
  effects_.reschedule = true;
}

absl::Status JobController::Cancel(std::string_view reason) {
  if (job().state() == v1::JOB_STATE_CANCELLING || job().state() == v1::JOB_STATE_CANCELLED) {
    return absl::OkStatus();
  }
  if (IsTerminal(job().state())) {
    return WrongState(job(), "cancelled", InsteadOfStop(job().state()));
  }
  const std::string why = OrDefault(reason, "cancelled by the user");
  if (InEpoch()) {
    SetState(v1::JOB_STATE_CANCELLING, why);
    Event("CANCELLING", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_CANCELLING);
    StopFor(records::STOP_INTENT_CANCEL, v1::STOP_MODE_TERMINATE, why);
  } else {
    SetState(v1::JOB_STATE_CANCELLED, why);
    Event("CANCELLED", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_CANCELLED);
    effects_.reschedule = true;
  }
  return absl::OkStatus();
}

absl::Status JobController::Suspend(std::string_view reason) {
  if (job_.record.intent() == records::STOP_INTENT_SUSPEND) {
    effects_.warnings.push_back(
        absl::StrCat(job().name(), " is being suspended already: resume it once it is SUSPENDED"));
    return absl::OkStatus();
  }
  const v1::JobState state = job().state();
  if (IsTerminal(state) || state == v1::JOB_STATE_SUSPENDED || state == v1::JOB_STATE_CANCELLING) {
    return WrongState(job(), "suspended", InsteadOfStop(state));
  }
  const std::string why = OrDefault(reason, "suspended by the user");
  if (InEpoch()) {
    job().set_reason(absl::StrCat("suspending: ", why));
    Event("SUSPENDING", v1::EVENT_SEVERITY_INFO, why);
    WarnOfLostProgress();
    StopFor(records::STOP_INTENT_SUSPEND, GentleStop(), why);
  } else {
    SetState(v1::JOB_STATE_SUSPENDED, why);
    Event("SUSPENDED", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_SUSPENDED);
    effects_.reschedule = true;
  }
  return absl::OkStatus();
}

absl::Status JobController::Resume() {
  if (job().state() != v1::JOB_STATE_SUSPENDED) {
    return WrongState(job(), "resumed", InsteadOfResume(job().state(), job_.record.intent()));
  }
  SetState(v1::JOB_STATE_QUEUED, "resumed");
  job_.record.clear_earliest_start();
  Event("RESUMED", v1::EVENT_SEVERITY_INFO, "back in the queue").set_state(v1::JOB_STATE_QUEUED);
  effects_.reschedule = true;
  return absl::OkStatus();
}

absl::Status JobController::Restart(std::string_view reason) {
  const std::string why = OrDefault(reason, "restarted by the user");
  const v1::JobState state = job().state();
  if (state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED) {
    job().clear_restarts();
    job_.record.clear_earliest_start();
    job_.record.clear_run_seconds();
    job_.record.clear_restarts_since_progress();
    job_.record.clear_excluded_workers();
    SetState(v1::JOB_STATE_QUEUED, why);
    Event("RESTARTED", v1::EVENT_SEVERITY_INFO, why).set_state(v1::JOB_STATE_QUEUED);
    effects_.reschedule = true;
    return absl::OkStatus();
  }
  const bool active = state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RUNNING ||
                      state == v1::JOB_STATE_RECOVERING;
  if (!active || job_.record.intent() != records::STOP_INTENT_UNSPECIFIED) {
    return WrongState(job(), "restarted", InsteadOfRestart(state));
  }
  // RESTARTING follows when the epoch is over, as after a failure.
  Event("RESTART_REQUESTED", v1::EVENT_SEVERITY_INFO, why);
  if (InEpoch()) {
    WarnOfLostProgress();
    StopFor(records::STOP_INTENT_RESTART, GentleStop(), why);
  } else {
    job_.record.clear_earliest_start();
    effects_.reschedule = true;
  }
  return absl::OkStatus();
}

void JobController::Drain(const WorkerId& worker, std::string_view reason) {
  MoveFrom(worker, absl::StrCat("worker ", worker.value(), " is drained",
                                reason.empty() ? "" : ": ", ToAbsl(reason)));
}

void JobController::OnWorkerShutdown(const WorkerId& worker, std::string_view reason) {
  MoveFrom(worker, absl::StrCat("worker ", worker.value(), " is shutting down: ", ToAbsl(reason)));
}

void JobController::Preempt(std::string_view why, std::optional<absl::Duration> grace) {
  if (!Running()) return;
  job_.record.clear_preempt_grace_seconds();
  if (grace) job_.record.set_preempt_grace_seconds(absl::ToDoubleSeconds(*grace));
  job().set_reason(absl::StrCat("yields: ", ToAbsl(why)));
  Event("PREEMPTED", v1::EVENT_SEVERITY_WARNING, std::string(why))
      .set_cause(v1::FAILURE_CAUSE_PREEMPTED);
  WarnOfLostProgress();
  HoldSpares({});
  StopFor(records::STOP_INTENT_PREEMPT, GentleStop(), why);
}

void JobController::MoveFrom(const WorkerId& worker, std::string_view why) {
  if (!Running()) return;
  const auto& members = job_.record.members();
  const bool concerned = std::any_of(members.begin(), members.end(), [&](const auto& member) {
    return member.worker() == worker.value() && !member.released();
  });
  if (!concerned) return;
  Event("DRAINING", v1::EVENT_SEVERITY_INFO, std::string(why)).set_worker(worker.value());
  WarnOfLostProgress();
  StopFor(records::STOP_INTENT_DRAIN, GentleStop(), why);
}

void JobController::WarnOfLostProgress() {
  const v1::CheckpointSpec& checkpoint = job().spec().spec().checkpoint();
  if (!checkpoint.dir().empty() || job_.record.phase() != records::EPOCH_PHASE_LIVE ||
      attempt().last_step() == 0) {
    return;
  }
  const std::string warning = absl::StrCat(
      job().name(), " writes no checkpoints (checkpoint.dir is not set): what this attempt has ",
      "trained, up to step ", attempt().last_step(), ", is lost; it starts again from ",
      checkpoint.resume_from().empty() ? "the beginning" : "checkpoint.resumeFrom",
      ". Set checkpoint.dir in the spec of jobs that are to keep their progress");
  Event("PROGRESS_LOST", v1::EVENT_SEVERITY_WARNING, warning);
  effects_.warnings.push_back(warning);
}

v1::StopMode JobController::GentleStop() const {
  return job_.job().spec().spec().checkpoint().dir().empty() ? v1::STOP_MODE_DRAIN
                                                             : v1::STOP_MODE_CHECKPOINT;
}

// -----------------------------------------------------------------------------------------------
// Scheduling

bool JobController::WantsPlacement() const {
  const v1::JobState state = job_.job().state();
  if (InEpoch() || (state != v1::JOB_STATE_QUEUED && state != v1::JOB_STATE_RECOVERING)) {
    return false;
  }
  return !job_.record.has_earliest_start() ||
         FromTimestamp(job_.record.earliest_start()) <= now_.wall;
}

bool JobController::ComesBack() const {
  if (WantsPlacement()) return false;
  switch (job_.record.intent()) {
    case records::STOP_INTENT_UNSPECIFIED:
      return job_.job().state() == v1::JOB_STATE_RECOVERING;
    case records::STOP_INTENT_RESTART:
    case records::STOP_INTENT_DRAIN:
    case records::STOP_INTENT_GROW:
      return true;
    default:
      return false;
  }
}

void JobController::Wait(const std::string& reason, std::int32_t queue_position) {
  if (job().reason() == reason && job().queue_position() == queue_position) return;
  job().set_reason(reason);
  job().set_queue_position(queue_position);
  effects_.job_changed = true;
}

void JobController::Place(const std::vector<records::MemberRecord>& members) {
  job().set_attempt(job().attempt() + 1);
  job().set_epoch(job().epoch() + 1);
  job().clear_queue_position();
  job_.record.clear_earliest_start();
  job_.record.clear_intent();
  job_.record.clear_ending_cause();
  job_.record.set_phase(records::EPOCH_PHASE_FORMING);
  const int before = job().attempt() == 1 ? WorldSizeOf(job().spec()) : job_.record.members_size();
  job_.record.clear_members();
  job().clear_ranks();
  for (const records::MemberRecord& member : members) {
    *job_.record.add_members() = member;
    v1::RankStatus* status = job().add_ranks();
    status->set_rank(member.rank());
    status->set_worker("workers/" + member.worker());
    status->set_host(member.host());
    status->set_device(member.device());
    status->set_state(v1::RANK_STATE_ASSIGNED);
  }
  job_.live.assign(members.size(), LiveRank());
  job_.stragglers.Reset(static_cast<int>(members.size()));
  job_.collectives_verdict.clear();
  job_.rendezvous.Clear();
  effects_.rendezvous_cleared = true;
  job_.placed = now_.mono;
  job_.progressed = now_.mono;
  *job_.record.mutable_placed_time() = ToTimestamp(now_.wall);
  job_.record.clear_commit_time();
  job_.first_finish.reset();
  job_.hang_reported = false;
  job_.linger_killed = false;
  job_.growth = 0;

  v1::Attempt& attempt = job_.attempts.emplace_back();
  attempt.set_attempt(job().attempt());
  attempt.set_epoch(job().epoch());
  attempt.set_state(v1::ATTEMPT_STATE_RUNNING);
  *attempt.mutable_start_time() = ToTimestamp(now_.wall);
  effects_.attempt_changed = true;

  SetState(v1::JOB_STATE_STARTING,
           absl::StrCat("epoch ", job().epoch(), ": waits for ", members.size(), " ranks to join"));
  Event("EPOCH_STARTED", v1::EVENT_SEVERITY_INFO,
        absl::StrCat("epoch ", job().epoch(), " on ", members.size(), " workers",
                     job().has_checkpoint()
                         ? absl::StrCat(", from the checkpoint of step ", job().checkpoint().step())
                         : ""))
      .set_state(v1::JOB_STATE_STARTING);
  TellRankChange(before);
  for (int rank = 0; rank < job_.record.members_size(); ++rank) SendStart(rank);
}

void JobController::SendStart(int rank) {
  const records::MemberRecord& self = member(rank);
  Outgoing& out = effects_.when_durable.emplace_back();
  out.worker = WorkerId(self.worker());
  out.incarnation = self.incarnation();
  v1::StartRank* start = out.message.mutable_start_rank();
  *start->mutable_key() = Key(rank);
  start->set_world_size(job_.record.members_size());
  *start->mutable_job() = job().spec();
  AddResume(start);
  start->set_local_rank(self.local_rank());
  start->set_local_world_size(self.local_world_size());
  std::int64_t memory_bytes = self.device_memory_bytes();
  for (const records::MemberRecord& peer : job_.record.members()) {
    memory_bytes = std::min(memory_bytes, peer.device_memory_bytes());
    // All of them would make a start of a thousand ranks a million peers.
    if (peer.local_rank() != 0 && peer.rank() != rank) continue;
    v1::RankPeer* out_peer = start->add_peers();
    out_peer->set_rank(peer.rank());
    out_peer->set_worker("workers/" + peer.worker());
    out_peer->set_address(peer.address());
    out_peer->set_host(peer.host());
  }
  start->set_device_memory_bytes(memory_bytes);
}

// The newest checkpoint; and as far as it is not known to be written, those before it.
void JobController::AddResume(v1::StartRank* start) const {
  if (!job_.job().has_checkpoint()) return;
  *start->mutable_resume() = job_.job().checkpoint();
  auto candidate = job_.checkpoints.rbegin();
  for (; candidate != job_.checkpoints.rend() && !IsConfirmed(candidate->step()); ++candidate) {
    if (candidate != job_.checkpoints.rbegin()) *start->add_resume_before() = *candidate;
  }
  const bool none_is_known = candidate == job_.checkpoints.rend();
  if (!none_is_known && candidate != job_.checkpoints.rbegin()) {
    *start->add_resume_before() = *candidate;
  }
  start->set_resume_or_begin(none_is_known && !job_.checkpoints.empty());
}

void JobController::Commit() {
  job_.record.set_phase(records::EPOCH_PHASE_LIVE);
  *job_.record.mutable_commit_time() = ToTimestamp(now_.wall);
  job_.progressed = now_.mono;
  job_.first_step = member(0).joined().resume_step() + 1;
  GiveUpUnwritten(member(0).joined().resume_step());
  SetState(v1::JOB_STATE_RUNNING, RunsOn());
  Event("EPOCH_COMMITTED", v1::EVENT_SEVERITY_INFO,
        absl::StrCat("all ", job_.record.members_size(), " ranks joined",
                     member(0).joined().resume_step() > 0
                         ? absl::StrCat("; resume after step ", member(0).joined().resume_step())
                         : ""))
      .set_state(v1::JOB_STATE_RUNNING);
  if (job_.failed_at) {
    effects_.recovery = now_.mono - *job_.failed_at;
    job_.failed_at.reset();
  }
  if (member(0).joined().total_steps() > 0) {
    job().mutable_progress()->set_total_steps(member(0).joined().total_steps());
  }
  for (int rank = 0; rank < job_.record.members_size(); ++rank) SendCommit(rank);
}

void JobController::SendCommit(int rank) {
  Outgoing& out = effects_.when_durable.emplace_back();
  out.worker = WorkerId(member(rank).worker());
  out.incarnation = member(rank).incarnation();
  v1::CommitEpoch* commit = out.message.mutable_commit_epoch();
  *commit->mutable_key() = Key(rank);
  *commit->mutable_nccl_ids() = member(0).joined().nccl_ids();
}

void JobController::SendVerdict(int rank, std::int64_t step, bool admitted, std::string reason) {
  Outgoing& out = effects_.when_durable.emplace_back();
  out.worker = WorkerId(member(rank).worker());
  out.incarnation = member(rank).incarnation();
  v1::ManifestVerdict* verdict = out.message.mutable_manifest_verdict();
  *verdict->mutable_key() = Key(rank);
  verdict->set_step(step);
  verdict->set_admitted(admitted);
  verdict->set_reason(std::move(reason));
}

void JobController::SendStop(int rank, v1::StopMode mode, std::string_view reason) {
  job_.live[rank].stop_sent = now_.mono;
  job_.live[rank].stop_mode = mode;
  Outgoing& out = effects_.at_once.emplace_back();
  out.worker = WorkerId(member(rank).worker());
  out.incarnation = member(rank).incarnation();
  v1::StopRank* stop = out.message.mutable_stop_rank();
  *stop->mutable_key() = Key(rank);
  stop->set_mode(mode);
  stop->set_reason(std::string(reason));
  stop->set_grace_seconds(absl::ToDoubleSeconds(Grace()));
  status(rank).set_state(v1::RANK_STATE_STOPPING);
}

}  // namespace fsdp::coordinator

// JobController: what the ranks of the current epoch report.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/lifecycle/job_controller.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/profile/collective_compare.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/spec.h"

namespace fsdp::coordinator {
namespace {

// Weight of the newest step in the smoothed step time that the ETA comes from.
constexpr double kStepSmoothing = 0.2;
constexpr int kDefaultKeepLast = 2;
constexpr int kMaxEventChars = 2000;

// Of an evaluation set; of the validation data when `set` is empty. Absent: it was not evaluated,
// or not finite.
std::optional<double> LossOf(const v1::CheckpointInfo& checkpoint, const std::string& set) {
  std::optional<double> loss;
  if (set.empty() && checkpoint.has_validation_loss()) loss = checkpoint.validation_loss();
  for (const v1::EvaluationLoss& evaluation : checkpoint.evaluations()) {
    if (!set.empty() && evaluation.name() == set) loss = evaluation.loss();
  }
  return loss.has_value() && std::isfinite(*loss) ? loss : std::nullopt;
}

}  // namespace

void JobController::OnJoined(int rank, const v1::RankJoined& joined) {
  if (job_.record.phase() != records::EPOCH_PHASE_FORMING) return;
  *member(rank).mutable_joined() = joined;
  status(rank).set_state(v1::RANK_STATE_JOINED);
  status(rank).set_pid(joined.pid());
  status(rank).set_memory_planned_bytes(joined.memory_planned_bytes());
  effects_.job_changed = true;
  if (const auto disagreement = CompareJoined(job_.record.members())) {
    Blame blame;
    blame.cause.set_cause(v1::FAILURE_CAUSE_RANKS_DIFFER);
    blame.cause.set_rank(disagreement->rank);
    blame.cause.set_worker("workers/" + member(disagreement->rank).worker());
    blame.cause.set_message(disagreement->message);
    return Fail(std::move(blame));
  }
  const auto& members = job_.record.members();
  const auto num_joined = std::count_if(members.begin(), members.end(),
                                        [](const auto& member) { return member.has_joined(); });
  if (num_joined == members.size()) return Commit();
  job().set_reason(absl::StrCat("epoch ", job().epoch(), ": ", num_joined, " of ", members.size(),
                                " ranks have joined"));
}

void JobController::OnRunning(int rank, const v1::RankRunning& running) {
  if (status(rank).state() == v1::RANK_STATE_STOPPING) return;
  status(rank).set_state(v1::RANK_STATE_RUNNING);
  job_.progressed = now_.mono;
  effects_.job_changed = true;
  if (rank != 0) return;
  // It was loaded.
  if (running.first_step() == job().checkpoint().step() + 1) {
    ConfirmCheckpoint(job().checkpoint().step());
  }
  effects_.start = now_.mono - job_.placed;
  job_.first_step = running.first_step();
  attempt().set_first_step(running.first_step());
  effects_.attempt_changed = true;
  ReportedEvent("RUNNING", v1::EVENT_SEVERITY_INFO,
                absl::StrFormat("first step %d, ready in %.3f s", running.first_step(),
                                running.start_seconds()));
}

void JobController::OnStep(int rank, const v1::StepReport& report) {
  v1::RankStatus& of_rank = status(rank);
  const v1::StepMetrics& metrics = report.metrics();
  of_rank.set_step(std::max(of_rank.step(), metrics.step()));
  of_rank.set_memory_peak_bytes(
      std::max({of_rank.memory_peak_bytes(), report.memory_peak_bytes(),
                metrics.memory_peak_bytes_by_rank().empty() ? metrics.memory_peak_bytes() : 0}));
  job_.progress_dirty = true;
  job_.stragglers.Add(rank, metrics);
  if (rank != 0) return;
  job_.stragglers.Fill(job().mutable_ranks());
  job_.progressed = now_.mono;
  if (std::exchange(job_.hang_reported, false)) {
    job().set_reason(RunsOn());
    effects_.job_changed = true;
  }
  for (LiveRank& live : job_.live) {
    live.stuck.clear();
    live.dump.reset();
  }
  job_.collectives_verdict.clear();
  attempt().set_last_step(std::max(attempt().last_step(), metrics.step()));
  *job().mutable_families() = report.families();

  v1::StepMetrics& entry = effects_.metrics.emplace_back(metrics);
  entry.set_offset(++job_.last_metric);
  entry.set_attempt(job().attempt());
  entry.set_epoch(job().epoch());
  if (!entry.has_time()) *entry.mutable_time() = ToTimestamp(happened_);
  if (entry.memory_peak_bytes_by_rank().empty()) {
    for (const v1::RankStatus& peer : job().ranks()) {
      entry.add_memory_peak_bytes_by_rank(peer.memory_peak_bytes());
    }
  } else {
    const int count = std::min(entry.memory_peak_bytes_by_rank_size(), job().ranks_size());
    for (int i = 0; i < count; ++i) {
      const std::int64_t peak = entry.memory_peak_bytes_by_rank(i);
      status(i).set_memory_peak_bytes(std::max(status(i).memory_peak_bytes(), peak));
    }
  }
  for (const std::int64_t peak : entry.memory_peak_bytes_by_rank()) {
    entry.set_memory_peak_bytes(std::max(entry.memory_peak_bytes(), peak));
  }
  UpdateProgress(entry);
  ReplaceStraggler();
}

void JobController::UpdateProgress(const v1::StepMetrics& metrics) {
  v1::Progress& progress = *job().mutable_progress();
  progress.set_step(metrics.step());
  progress.set_loss(metrics.loss());
  progress.set_tokens_per_second(metrics.tokens_per_second());
  progress.set_tokens(progress.tokens() + metrics.tokens());
  progress.set_grad_norm(metrics.grad_norm());
  progress.set_lr(metrics.lr());
  progress.set_mfu(metrics.mfu());
  progress.set_hfu(metrics.hfu());
  *progress.mutable_phases() = metrics.phases();
  progress.set_step_seconds(progress.step_seconds() == 0
                                ? metrics.step_seconds()
                                : progress.step_seconds() +
                                      kStepSmoothing *
                                          (metrics.step_seconds() - progress.step_seconds()));
  if (metrics.has_validation_loss()) progress.set_validation_loss(metrics.validation_loss());
  if (!metrics.evaluations().empty()) *progress.mutable_evaluations() = metrics.evaluations();
  const std::int64_t remaining = progress.total_steps() - progress.step();
  progress.set_eta_seconds(remaining > 0 ? static_cast<double>(remaining) * progress.step_seconds()
                                         : 0);
  *progress.mutable_update_time() = ToTimestamp(now_.wall);
}

void JobController::OnManifest(int rank, const v1::ManifestProposal& proposal) {
  v1::CheckpointInfo checkpoint = proposal.checkpoint();
  if (rank != 0) {
    return SendVerdict(rank, checkpoint.step(), false, "only rank 0 publishes checkpoints");
  }
  checkpoint.set_epoch(job().epoch());
  if (!checkpoint.has_create_time()) *checkpoint.mutable_create_time() = ToTimestamp(now_.wall);
  if (checkpoint.world_size() == 0) checkpoint.set_world_size(job_.record.members_size());
  // A proposal that is made again, since its verdict was lost, may be older than others.
  std::erase_if(job_.checkpoints,
                [&](const v1::CheckpointInfo& old) { return old.step() == checkpoint.step(); });
  job_.checkpoints.insert(
      std::find_if(job_.checkpoints.begin(), job_.checkpoints.end(),
                   [&](const auto& later) { return later.step() > checkpoint.step(); }),
      checkpoint);
  effects_.checkpoints.push_back(checkpoint);
  *job().mutable_checkpoint() = job_.checkpoints.back();
  if (IsConfirmed(checkpoint.step())) {
    job_.record.add_unconfirmed_checkpoints(checkpoint.step());
  }
  Event("CHECKPOINT_PUBLISHED", v1::EVENT_SEVERITY_INFO,
        absl::StrCat("step ", checkpoint.step(), " at ", checkpoint.path()))
      .set_step(checkpoint.step());
  SendVerdict(rank, checkpoint.step(), true, "");
  GrowAfter(checkpoint.step());
}

void JobController::OnPublished(int rank, const v1::CheckpointPublished& published) {
  if (rank == 0) ConfirmCheckpoint(published.step());
}

bool JobController::IsConfirmed(std::int64_t step) const {
  const auto& unconfirmed = job_.record.unconfirmed_checkpoints();
  return std::find(unconfirmed.begin(), unconfirmed.end(), step) == unconfirmed.end();
}

void JobController::ConfirmCheckpoint(std::int64_t step) {
  if (IsConfirmed(step)) return;
  auto& unconfirmed = *job_.record.mutable_unconfirmed_checkpoints();
  unconfirmed.erase(std::remove_if(unconfirmed.begin(), unconfirmed.end(),
                                   [&](std::int64_t other) { return other <= step; }),
                    unconfirmed.end());
  effects_.job_changed = true;
  KeepNewestCheckpoints();
}

// The list follows the same retention as rank 0 on disk: the newest N, every M-th step, the best
// one, the newest with a finite loss. Only those that are known to be on disk count. However many
// proposals waited for a verdict and are admitted in one go, none of them pushes out what is there
// until it is there itself.
void JobController::KeepNewestCheckpoints() {
  const v1::CheckpointSpec& spec = job().spec().spec().checkpoint();
  const int keep = spec.has_keep_last() ? spec.keep_last() : kDefaultKeepLast;
  if (keep == 0) return;
  const std::string best_by = BestBySet(job().spec().spec());
  const v1::CheckpointInfo* best = nullptr;
  std::int64_t finite_step = -1;
  std::ptrdiff_t num_old = -keep;
  for (const v1::CheckpointInfo& checkpoint : job_.checkpoints) {
    if (!IsConfirmed(checkpoint.step())) continue;
    ++num_old;
    if (checkpoint.has_train_loss() && std::isfinite(checkpoint.train_loss())) {
      finite_step = checkpoint.step();
    }
    const std::optional<double> loss = LossOf(checkpoint, best_by);
    if (loss.has_value() && (best == nullptr || *loss < *LossOf(*best, best_by))) {
      best = &checkpoint;
    }
  }
  const std::int64_t best_step = spec.keep_best() && best != nullptr ? best->step() : -1;
  std::vector<v1::CheckpointInfo> kept;
  for (const v1::CheckpointInfo& checkpoint : job_.checkpoints) {
    const bool every =
        spec.keep_every_steps() > 0 && checkpoint.step() % spec.keep_every_steps() == 0;
    const bool old = IsConfirmed(checkpoint.step()) && num_old-- > 0;
    if (!old || every || checkpoint.step() == best_step || checkpoint.step() == finite_step) {
      kept.push_back(checkpoint);
    } else {
      effects_.dropped_checkpoints.push_back(checkpoint.step());
    }
  }
  job_.checkpoints = std::move(kept);
}

void JobController::OnExited(int rank, const v1::RankExited& exited) {
  if (member(rank).released()) return;
  *member(rank).mutable_exited() = exited;
  Release(rank, v1::RANK_STATE_EXITED);
  status(rank).set_step(std::max(status(rank).step(), exited.last_step()));
  if (job_.record.phase() == records::EPOCH_PHASE_ENDING) {
    RefineCause(rank, exited);
    return MaybeCloseEpoch();
  }
  if (exited.finished()) {
    if (!job_.first_finish) job_.first_finish = now_.mono;
    if (!AllFinished()) return;
    job_.record.set_phase(records::EPOCH_PHASE_ENDING);
    return MaybeCloseEpoch();
  }
  effects_.detection = now_.wall - happened_;
  Blame blame{.cause = CauseOfExit(rank, exited)};
  // Ranks stop themselves together, at the same step: the others are on their way, rank 0 perhaps
  // with a checkpoint to publish.
  if (exited.signal() == 0 && exited.exit_code() == 0) blame.mode = GentleStop();
  Fail(std::move(blame));
}

// Which rank lost which, in what, and where to look. `peer` -1: the rank cannot tell.
std::string JobController::LossSentence(int rank, int peer, const v1::RankFailure& failure) {
  const records::MemberRecord& self = member(rank);
  std::string text = absl::StrCat("rank ", rank, " on ", self.worker());
  const std::string in =
      failure.collective().empty() ? "" : absl::StrCat(" in ", failure.collective());
  const auto log_of = [&](const std::string& which) {
    return absl::StrCat("fsdpctl logs ", JobIdFromName(job().name()).value(), " --attempt ",
                        job().attempt(), which);
  };
  if (peer < 0) {
    absl::StrAppend(&text, " lost its peers", in, ": ", failure.message(),
                    "; look for the rank that ended or stood still: ", log_of(""));
    return text;
  }
  const records::MemberRecord& lost = member(peer);
  absl::StrAppend(&text, " lost rank ", peer, " on ", lost.worker(), in, ": ", failure.message(),
                  "; look at ", log_of(absl::StrCat(" --rank ", peer)));
  if (self.host() != lost.host()) {
    absl::StrAppend(&text, " and, if it ends without a reason, at the network between ",
                    self.host(), " and ", lost.host());
  } else {
    absl::StrAppend(&text, " and, if it ends without a reason, at the kernel's log of ",
                    lost.host().empty() ? "its host" : lost.host());
  }
  return text;
}

void JobController::OnFailure(int rank, const v1::RankFailure& failure) {
  if (!job_.live[rank].failure) job_.live[rank].failure = failure;
  Blame blame;
  v1::RootCause& cause = blame.cause;
  const bool blames_peer =
      failure.has_peer() && failure.peer() >= 0 && failure.peer() < job_.record.members_size();
  const int culprit = blames_peer ? failure.peer() : rank;
  cause.set_cause(failure.cause() == v1::FAILURE_CAUSE_UNSPECIFIED ? v1::FAILURE_CAUSE_RANK_FAILED
                                                                   : failure.cause());
  cause.set_rank(culprit);
  cause.set_worker("workers/" + member(culprit).worker());
  cause.set_epoch(job().epoch());
  cause.set_step(failure.step());
  cause.set_collective(failure.collective());
  const bool of_peers_loss = failure.cause() == v1::FAILURE_CAUSE_COMMUNICATION;
  if (of_peers_loss) {
    cause.set_message(LossSentence(rank, blames_peer ? culprit : -1, failure));
  } else {
    // Of a peer's own trouble a rank passes on what that peer told it.
    cause.set_message(
        absl::StrCat("rank ", culprit, " on ", member(culprit).worker(), ": ", failure.message()));
  }
  if (Running()) {
    blame.origin = of_peers_loss ? -1 : culprit;
    return Fail(std::move(blame));
  }
  // A rank's own trouble explains what its peers saw of it; and an accused rank that lost a peer
  // itself passes the blame on.
  const v1::RootCause& known = job_.record.ending_cause();
  const bool of_peers = known.cause() == v1::FAILURE_CAUSE_COMMUNICATION;
  const bool passes_on = known.rank() == rank && blames_peer && culprit != rank;
  if (job_.record.intent() == records::STOP_INTENT_UNSPECIFIED && of_peers &&
      (cause.cause() != v1::FAILURE_CAUSE_COMMUNICATION || passes_on)) {
    ReplaceCause(std::move(cause));
  }
}

void JobController::OnNotice(int rank, const v1::RankNotice& notice) {
  v1::JobEvent& event =
      ReportedEvent(notice.type().empty() ? "NOTICE" : notice.type(),
                    notice.severity() == v1::EVENT_SEVERITY_UNSPECIFIED ? v1::EVENT_SEVERITY_INFO
                                                                        : notice.severity(),
                    notice.message().substr(0, kMaxEventChars));
  event.set_rank(rank);
  event.set_worker(status(rank).worker());
  if (notice.step() > 0) event.set_step(notice.step());
  if (notice.type() != kTrainerStuck) return;
  job_.live[rank].stuck = event.message();
  ExplainHang(rank);
  CompareDumps();
}

void JobController::OnDump(int rank, const v1::CollectiveDump& dump) {
  // Asked for by a caller: nothing is wrong with the job.
  if (!job_.hang_reported && job_.record.phase() == records::EPOCH_PHASE_LIVE) return;
  job_.live[rank].dump = dump;
  std::string text = "recent collectives:";
  const int first = std::max(0, dump.records_size() - 8);
  for (int i = first; i < dump.records_size(); ++i) {
    const v1::CollectiveRecord& record = dump.records(i);
    absl::StrAppend(&text, " #", record.sequence(), " ", record.operation(), " ", record.unit(),
                    " ", v1::CollectiveState_Name(record.state()).substr(17), ";");
  }
  for (const std::string& stack : dump.stacks()) absl::StrAppend(&text, "\n", stack);
  v1::JobEvent& event =
      ReportedEvent("COLLECTIVE_DUMP", v1::EVENT_SEVERITY_INFO, text.substr(0, kMaxEventChars));
  event.set_rank(rank);
  event.set_worker(status(rank).worker());
  CompareDumps();
}

void JobController::CompareDumps() {
  if (!job_.collectives_verdict.empty()) return;
  std::map<int, v1::CollectiveDump> dumps;
  std::map<int, std::string> silent;
  for (int rank = 0; rank < job_.record.members_size(); ++rank) {
    const LiveRank& live = job_.live[rank];
    if (live.dump) {
      dumps[rank] = *live.dump;
    } else if (!live.stuck.empty()) {
      silent[rank] = live.stuck;
    } else {
      return;
    }
  }
  const CollectiveVerdict verdict = CompareCollectives(dumps, silent);
  job_.collectives_verdict = verdict.message;
  v1::JobEvent& event = ReportedEvent("COLLECTIVES_COMPARED", v1::EVENT_SEVERITY_WARNING,
                                      verdict.message.substr(0, kMaxEventChars));
  if (verdict.ranks.empty()) return;
  event.set_rank(verdict.ranks.front());
  event.set_worker(status(verdict.ranks.front()).worker());
}

void JobController::OnPulse(int rank, const v1::RankPulse& pulse) {
  LiveRank& live = job_.live[rank];
  live.idle_since.reset();
  std::string bytes = pulse.SerializeAsString();
  const bool first = !live.pulse || live.pulse_outdated;
  // A trainer of an earlier version counts no beats.
  const bool renewed = !first && (pulse.beats() > 0 ? pulse.beats() != live.pulse->pulse.beats()
                                                    : bytes != live.pulse_bytes);
  if (first || renewed) {
    live.pulse = RankPulseView{pulse, now_.mono};
    live.pulse_outdated = false;
    live.pulse_bytes = std::move(bytes);
    if (pulse.phase() == v1::PHASE_TOKENIZE) job_.tokenizing = now_.mono;
  }
  v1::RankStatus& of_rank = status(rank);
  if (pulse.step() > of_rank.step()) {
    of_rank.set_step(pulse.step());
    job_.progressed = now_.mono;
    job_.progress_dirty = true;
  }
  if (of_rank.state() == v1::RANK_STATE_ASSIGNED) {
    of_rank.set_state(v1::RANK_STATE_STARTING);
    job_.progress_dirty = true;
  }
}

void JobController::OnPut(int rank, const v1::RendezvousPut& put) {
  if (!Running()) return;
  std::vector<int> waiters;
  const absl::Status stored = job_.rendezvous.Put(
      put.name(), put.value(), static_cast<size_t>(job_.record.members_size()), &waiters);
  if (!stored.ok()) {
    Blame blame;
    blame.cause.set_cause(v1::FAILURE_CAUSE_RANK_FAILED);
    blame.cause.set_rank(rank);
    blame.cause.set_worker("workers/" + member(rank).worker());
    blame.cause.set_message(
        absl::StrCat("rank ", rank, " on ", member(rank).worker(), ": ", stored.message()));
    return Fail(std::move(blame));
  }
  effects_.rendezvous.emplace_back(put.name(), put.value());
  for (const int waiter : waiters) {
    v1::RendezvousGet get;
    get.set_name(put.name());
    OnGet(waiter, get);
  }
}

void JobController::OnGet(int rank, const v1::RendezvousGet& get) {
  if (!Running()) return;
  const std::string* value = job_.rendezvous.Get(rank, get.name());
  if (value == nullptr) return;
  // No waiting for the disk: a value that is lost with the coordinator is put again by its owner.
  Outgoing& out = effects_.at_once.emplace_back();
  out.worker = WorkerId(member(rank).worker());
  out.incarnation = member(rank).incarnation();
  v1::RendezvousValue* answer = out.message.mutable_rendezvous_value();
  *answer->mutable_key() = Key(rank);
  answer->set_name(get.name());
  answer->set_value(*value);
}

}  // namespace fsdp::coordinator

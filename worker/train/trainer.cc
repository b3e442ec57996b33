#include "worker/train/trainer.h"

#include <algorithm>
#include <memory>

#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/train/running_rank.h"
#include "worker/train/trainer_ceilings.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/trainer_pulse.h"
#include "worker/train/trainer_report.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {
namespace {

// Tells the control plane why this rank ends.
void SendFailure(const absl::Status& status, const RankProgress& progress,
                 const FlightRecorder& recorder, TrainerLink& link) {
  v1::TrainerToDaemon message;
  v1::RankFailure& failure = *message.mutable_failure();
  failure.set_cause(CauseOf(status));
  failure.set_message(std::string(status.message()));
  failure.set_step(progress.step());
  failure.set_phase(progress.phase());
  failure.set_checkpoint_damaged(failure.cause() == v1::FAILURE_CAUSE_CHECKPOINT &&
                                 failure.phase() == v1::PHASE_START && absl::IsDataLoss(status));
  failure.set_collective(recorder.Culprit());
  if (const std::optional<int> peer = PeerOf(status); peer.has_value()) failure.set_peer(*peer);
  link.Send(message).IgnoreError();
  if (failure.cause() != v1::FAILURE_CAUSE_COMMUNICATION) return;
  // What it was doing then, to be compared with what the others did.
  *message.mutable_collective_dump() = MakeCollectiveDump(recorder);
  link.Send(message).IgnoreError();
}

// Proves what this rank sees and waits for its peers.
absl::StatusOr<v1::CommitEpoch> Join(const TrainerRun& run, const RankSetup& setup,
                                     TrainerLink& link, Device& device, RankProgress& progress,
                                     CeilingsCache& ceilings) {
  v1::TrainerToDaemon message;
  ASSIGN_OR_RETURN(*message.mutable_joined(), MakeJoined(setup));
  if (setup.rank() == 0 && setup.world_size() > 1 && run.add_unique_ids) {
    RETURN_IF_ERROR(run.add_unique_ids(message.mutable_joined()));
  }
  RETURN_IF_ERROR(link.Send(message));
  progress.SetState(v1::RANK_STATE_JOINED);
  // While the peers still start.
  RETURN_IF_ERROR(ceilings.Prepare(run.measure_ceilings, device, link));
  return link.WaitCommit();
}

// How this rank opens its data: what becomes of it is told to the log and the control plane.
DataAccess AccessOf(const TrainerRun& run, TrainerLink& link, RankProgress& progress) {
  DataAccess access = run.data;
  TokenCacheOptions& cache = access.cache;
  const v1::TrainerStart& start = run.start;
  // The host's other ranks wait for the tokens.
  cache.num_threads = start.cpu_threads() * std::max(1, start.assignment().local_world_size());
  cache.stop_requested = [&link] { return link.stop().has_value(); };
  cache.on_event = [&link, &progress](TokenCacheEvent event, const std::string& words) {
    progress.SetPhase(event == TokenCacheEvent::kReady ? v1::PHASE_START : v1::PHASE_TOKENIZE);
    if (words.empty()) return;
    const bool damaged = event == TokenCacheEvent::kDamaged;
    LogLine(damaged ? LogLevel::kWarning : LogLevel::kInfo, __FILE__, __LINE__, words);
    if (event != TokenCacheEvent::kMaking && event != TokenCacheEvent::kMade && !damaged) return;
    v1::TrainerToDaemon message;
    message.mutable_notice()->set_type(event == TokenCacheEvent::kMaking ? "TOKENIZING"
                                       : damaged                         ? "TOKENS_DAMAGED"
                                                                         : "TOKENIZED");
    message.mutable_notice()->set_message(words);
    message.mutable_notice()->set_severity(damaged ? v1::EVENT_SEVERITY_WARNING
                                                   : v1::EVENT_SEVERITY_INFO);
    link.Send(message).IgnoreError();
  };
  return access;
}

// A failure is told before anything is torn down.
absl::StatusOr<v1::TrainerDone> JoinAndTrain(const TrainerRun& run, TrainerLink& link,
                                             Device& device, RankProgress& progress,
                                             FlightRecorder& recorder) {
  absl::StatusOr<RankSetup> setup =
      SetUpRank(run.start.assignment(), device, AccessOf(run, link, progress));
  CeilingsCache ceilings(run.start);
  // It was asked to stop while it made tokens; with those that are made the next goes on.
  if (absl::IsCancelled(setup.status())) {
    v1::TrainerToDaemon message;
    message.mutable_done();
    RETURN_IF_ERROR(link.Send(message));
    return message.done();
  }
  if (!setup.ok()) {
    SendFailure(setup.status(), progress, recorder, link);
    return setup.status();
  }
  absl::StatusOr<v1::CommitEpoch> commit = Join(run, *setup, link, device, progress, ceilings);
  if (!commit.ok()) {
    SendFailure(commit.status(), progress, recorder, link);
    return commit.status();
  }
  RunningRank rank(run, link, device, *setup, progress, recorder, ceilings);
  absl::Status status = rank.Start(*commit);
  if (status.ok()) {
    absl::StatusOr<v1::TrainerDone> done = rank.Train();
    if (done.ok()) return done;
    status = done.status();
  }
  status = rank.Explain(status);
  SendFailure(status, progress, recorder, link);
  rank.Abandon("a rank failed");
  return status;
}

}  // namespace

absl::StatusOr<v1::TrainerDone> RunRank(const TrainerRun& run, TrainerLink& link, Device& device) {
  RankProgress progress;
  // Shared: a dump may still be under way when this returns.
  const auto recorder = std::make_shared<FlightRecorder>(Clock::Real());
  if (run.on_recorder) run.on_recorder(recorder);
  link.OnDump([&link, recorder] {
    v1::TrainerToDaemon message;
    *message.mutable_collective_dump() = MakeCollectiveDump(*recorder);
    link.Send(message).IgnoreError();
  });
  const PulseThread pulse(run.start.assignment().key(), link, progress, *recorder);
  return JoinAndTrain(run, link, device, progress, *recorder);
}

}  // namespace fsdp

#include "worker/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/train/engine.h"
#include "worker/train/numeric_guard.h"
#include "worker/train/trainer_ceilings.h"
#include "worker/train/trainer_checkpoint.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/trainer_evaluate.h"
#include "worker/train/trainer_exchange.h"
#include "worker/train/trainer_pulse.h"
#include "worker/train/trainer_report.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {
namespace {

double SecondsSince(MonotonicTime begin) {
  return absl::ToDoubleSeconds(Clock::Real().Now() - begin);
}

// What ranks agree to do after a step; the largest wins.
enum class Outcome : int { kGoOn = 0, kStopWithCheckpoint = 1, kStop = 2 };

Outcome OutcomeOf(const std::optional<v1::TrainerStop>& stop) {
  if (!stop.has_value()) return Outcome::kGoOn;
  return stop->mode() == v1::STOP_MODE_CHECKPOINT ? Outcome::kStopWithCheckpoint : Outcome::kStop;
}

// A rank between its commit and its end.
class RunningRank {
 public:
  RunningRank(const TrainerRun& run, TrainerLink& link, Device& device, RankSetup& setup,
              RankProgress& progress, FlightRecorder& recorder, CeilingsCache& ceilings)
      : run_(run),
        link_(link),
        device_(device),
        setup_(setup),
        progress_(progress),
        recorder_(recorder),
        ceilings_(ceilings),
        guard_(setup.spec().train()) {}

  absl::Status Start(const v1::CommitEpoch& commit);
  absl::StatusOr<v1::TrainerDone> Train();
  // Nobody waits for this rank any more. Also drains the streams, which work of the communicators
  // may still be in.
  void Abandon(const std::string& why);
  // The error of a communicator explains what the engine made of it.
  absl::Status Explain(const absl::Status& status) const;

 private:
  absl::StatusOr<StepResult> Step();
  // The figures of a step that is not to be followed by another as if nothing were.
  absl::Status Judge(const StepResult& result);
  absl::Status RollBack();
  absl::Status Agree();
  absl::Status Evaluate();
  absl::Status SaveIfDue(bool last);
  absl::Status Report(StepFacts facts);
  absl::StatusOr<v1::TrainerDone> Finish(bool finished);
  void Notice(const std::string& type, const std::string& message);
  void LogDataSources() const;
  [[nodiscard]] std::int64_t memory_in_use_bytes() const {
    if (run_.memory_in_use_bytes) return run_.memory_in_use_bytes(device_);
    return static_cast<std::int64_t>(device_.allocated_bytes() - allocated_before_);
  }

  [[nodiscard]] bool evaluation_due() const {
    const std::int64_t every = setup_.spec().train().evaluate_every_steps();
    return CanEvaluate(setup_) && !evaluated_ &&
           (at_.step == setup_.total_steps || (every > 0 && at_.step % every == 0));
  }

  const TrainerRun& run_;
  TrainerLink& link_;
  Device& device_;
  RankSetup& setup_;
  RankProgress& progress_;
  FlightRecorder& recorder_;
  CeilingsCache& ceilings_;
  // What connects the ranks, and what records it: the engine and the exchange see the recorders.
  RankCommunicators communicators_;
  std::unique_ptr<RecordingCommunicator> gather_, scatter_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RankExchange> exchange_;
  std::unique_ptr<CheckpointManager> checkpoints_;

  const MonotonicTime created_ = Clock::Real().Now();
  // What measuring the ceilings took and gave back.
  const std::size_t allocated_before_ = device_.allocated_bytes();
  NumericGuard guard_;
  TrainingPosition at_;
  bool evaluated_ = false;                       // at at_.step
  std::vector<v1::EvaluationLoss> evaluations_;  // the newest
  // Why the step that was just made is followed by a rollback; empty: it is not.
  std::string rollback_;
  Outcome outcome_ = Outcome::kGoOn;
  std::vector<std::int64_t> memory_peak_bytes_;  // by rank
  double lr_ = 0;
  MonotonicTime reported_ = Clock::Real().Now();
  TrainerSeconds seconds_;  // since reported_
  std::vector<std::int32_t> tokens_, targets_;
};

absl::Status RunningRank::Start(const v1::CommitEpoch& commit) {
  absl::StatusOr<RankCommunicators> connected = run_.connect(commit);
  if (!connected.ok()) {
    return WithCause(connected.status(), v1::FAILURE_CAUSE_COMMUNICATION);
  }
  communicators_ = *std::move(connected);
  if (communicators_.gather != nullptr) {
    gather_ = std::make_unique<RecordingCommunicator>(*communicators_.gather, recorder_, "gather",
                                                      run_.marker);
  }
  if (communicators_.scatter != nullptr) {
    scatter_ = std::make_unique<RecordingCommunicator>(*communicators_.scatter, recorder_,
                                                       "scatter", run_.marker);
  }
  Communicator* gather = gather_.get();
  Communicator* scatter = scatter_ != nullptr ? scatter_.get() : gather;
  EngineOptions options;
  options.optimizer = setup_.optimizer;
  ASSIGN_OR_RETURN(const AttentionKernels attention, Engine::AttentionFor(setup_.plan, device_));
  LOG_INFO("rank %d on %s; attention forward: %s, backward: %s", setup_.rank(), device_.name(),
           attention.forward, attention.backward);
  ASSIGN_OR_RETURN(engine_, Engine::Create(setup_.plan, options, device_, gather, scatter));
  ASSIGN_OR_RETURN(exchange_, RankExchange::Create(*engine_, device_, gather));
  CheckpointOptions checkpoint_options;
  checkpoint_options.store = run_.store;
  checkpoint_options.verdict_wait = run_.verdict_wait;
  checkpoints_ = std::make_unique<CheckpointManager>(setup_, *engine_, device_, *exchange_, link_,
                                                     checkpoint_options);
  ASSIGN_OR_RETURN(at_, checkpoints_->Restore());
  guard_.Resume(at_.numerics);
  if (at_.position > 0) LogDataSources();
  memory_peak_bytes_.assign(static_cast<std::size_t>(setup_.world_size()), memory_in_use_bytes());
  const auto share = setup_.plan.split.Share(setup_.rank());
  const auto elements = static_cast<std::size_t>(share.count * setup_.plan.input.sequence_length);
  tokens_.resize(elements);
  targets_.resize(elements);

  v1::TrainerToDaemon message;
  message.mutable_running()->set_first_step(at_.step + 1);
  message.mutable_running()->set_start_seconds(SecondsSince(created_));
  RETURN_IF_ERROR(link_.Send(message));
  progress_.SetState(v1::RANK_STATE_RUNNING);
  progress_.SetStep(at_.step, 0);
  return absl::OkStatus();
}

void RunningRank::LogDataSources() const {
  const std::string text = DataSourcesText(setup_.data, at_.position);
  if (setup_.rank() == 0 && !text.empty()) LOG_INFO("data up to step %d: %s", at_.step, text);
}

absl::StatusOr<StepResult> RunningRank::Step() {
  progress_.SetPhase(v1::PHASE_TRAIN);
  const MonotonicTime begin = Clock::Real().Now();
  const auto share = setup_.plan.split.Share(setup_.rank());
  RETURN_IF_ERROR(WithCause(setup_.data.train->Read(at_.position + share.begin, tokens_, targets_),
                            v1::FAILURE_CAUSE_DATA));
  seconds_.data += SecondsSince(begin);
  StepInput input;
  input.step = at_.step + 1;
  lr_ = LearningRate(setup_.optimizer, input.step, setup_.total_steps);
  input.lr = lr_;
  input.tokens = tokens_;
  input.targets = targets_;
  input.bounds = guard_.bounds();
  ASSIGN_OR_RETURN(StepResult result, engine_->Step(input));
  RETURN_IF_ERROR(Judge(result));
  if (!rollback_.empty()) return result;
  at_.step = input.step;
  at_.position += setup_.plan.input.global_batch;
  at_.tokens += result.valid_tokens;
  evaluated_ = false;
  at_.train_loss = result.loss;
  at_.numerics = guard_.state();
  progress_.SetStep(at_.step, SecondsSince(begin));
  return result;
}

absl::Status RunningRank::Judge(const StepResult& result) {
  NumericGuard::Verdict verdict = guard_.Judge(result);
  switch (verdict.action) {
    case NumericGuard::Action::kStop:
      return WithCause(absl::FailedPreconditionError(verdict.message),
                       v1::FAILURE_CAUSE_NON_FINITE);
    case NumericGuard::Action::kRollBack:
      rollback_ = std::move(verdict.message);
      break;
    case NumericGuard::Action::kGoOn:
      if (!verdict.type.empty()) Notice(verdict.type, verdict.message);
  }
  return absl::OkStatus();
}

// To the weights, moments and step of a checkpoint; the data goes on after the step's batch.
absl::Status RunningRank::RollBack() {
  progress_.SetPhase(v1::PHASE_CHECKPOINT);
  const MonotonicTime begin = Clock::Real().Now();
  const std::int64_t position = at_.position + setup_.plan.input.global_batch;
  const std::string reason = std::exchange(rollback_, {});
  ASSIGN_OR_RETURN(const TrainingPosition back, checkpoints_->RollBack());
  Notice("ROLLED_BACK", absl::StrFormat("%s; back to step %d, on with sequence %d of the data",
                                        reason, back.step, position));
  at_ = back;
  at_.position = position;
  guard_.RollBackTo(at_.numerics);
  at_.numerics = guard_.state();
  progress_.SetStep(at_.step, 0);
  seconds_.checkpoint += SecondsSince(begin);
  return absl::OkStatus();
}

// Stops reach ranks at different times; all must end at the same step.
absl::Status RunningRank::Agree() {
  const MonotonicTime begin = Clock::Real().Now();
  const ShardSaver::Progress saved = checkpoints_->progress();
  const double mine[] = {static_cast<double>(OutcomeOf(link_.stop())),
                         static_cast<double>(memory_in_use_bytes()), saved[0], saved[1], saved[2]};
  ASSIGN_OR_RETURN(const auto all, exchange_->Gather(mine, "agree"));
  int largest = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    largest = std::max(largest, static_cast<int>(all[rank][0]));
    memory_peak_bytes_[rank] =
        std::max(memory_peak_bytes_[rank], static_cast<std::int64_t>(all[rank][1]));
  }
  outcome_ = static_cast<Outcome>(largest);
  seconds_.agree += SecondsSince(begin);
  return checkpoints_->OnProgress(all, 2);
}

absl::Status RunningRank::Evaluate() {
  progress_.SetPhase(v1::PHASE_EVALUATE);
  const MonotonicTime begin = Clock::Real().Now();
  ASSIGN_OR_RETURN(Evaluations made, EvaluateAll(setup_, *engine_));
  at_.validation_loss = made.validation_loss;
  evaluations_ = std::move(made.sets);
  seconds_.evaluate += SecondsSince(begin);
  evaluated_ = true;
  return absl::OkStatus();
}

absl::Status RunningRank::SaveIfDue(bool last) {
  if (!checkpoints_->enabled() || checkpoints_->last_step() == at_.step) return absl::OkStatus();
  const std::int64_t every = setup_.spec().checkpoint().every_steps();
  // A rollback goes to the newest checkpoint: none is made of a step with figures like those it
  // goes back from.
  const bool good = !guard_.may_roll_back() || std::isfinite(at_.train_loss.value_or(0));
  if (!last && !(every > 0 && at_.step % every == 0 && good)) return absl::OkStatus();
  progress_.SetPhase(v1::PHASE_CHECKPOINT);
  const MonotonicTime begin = Clock::Real().Now();
  LogDataSources();
  RETURN_IF_ERROR(checkpoints_->Save(at_));
  seconds_.checkpoint += SecondsSince(begin);
  return absl::OkStatus();
}

absl::Status RunningRank::Report(StepFacts facts) {
  const MonotonicTime now = Clock::Real().Now();
  seconds_.total = absl::ToDoubleSeconds(now - reported_);
  reported_ = now;
  facts.seconds = std::exchange(seconds_, {});
  facts.lr = lr_;
  facts.memory_peak_bytes = memory_peak_bytes_;
  facts.final = at_.step == setup_.total_steps;
  const std::int64_t step = facts.result.step;
  if (setup_.rank() == 0 && IsPrinted(step, setup_.total_steps)) {
    run_.print(TableRow(step, facts.result.loss,
                        *std::max_element(memory_peak_bytes_.begin(), memory_peak_bytes_.end())));
  }
  if (setup_.rank() == 0 && facts.validation_loss.has_value()) {
    run_.print(
        absl::StrCat("step ", at_.step, ": validation loss ", FormatLoss(*facts.validation_loss)));
  }
  for (const v1::EvaluationLoss& set : facts.evaluations) {
    if (setup_.rank() != 0) break;
    run_.print(
        absl::StrCat("step ", at_.step, ": loss of ", set.name(), " ", FormatLoss(set.loss())));
  }
  v1::TrainerToDaemon message;
  *message.mutable_step() = MakeStepReport(setup_, *engine_, facts, ceilings_.Get());
  return link_.Send(message);
}

absl::StatusOr<v1::TrainerDone> RunningRank::Train() {
  const bool has_steps = at_.step < setup_.total_steps;
  if (has_steps && setup_.rank() == 0) run_.print(TableHeader());
  // A job that its own checkpoint brings to its end had only to be finished; one that somebody
  // starts from there has a limit that was forgotten.
  if (!has_steps && !setup_.assignment.has_resume()) {
    Notice("NOTHING_TO_TRAIN", NothingToTrain(setup_, at_.step));
  }
  while (at_.step < setup_.total_steps && outcome_ == Outcome::kGoOn) {
    StepFacts facts;
    ASSIGN_OR_RETURN(facts.result, Step());
    RETURN_IF_ERROR(Agree());
    facts.rolled_back = !rollback_.empty();
    if (!facts.rolled_back && evaluation_due()) {
      RETURN_IF_ERROR(Evaluate());
      facts.validation_loss = at_.validation_loss;
      facts.evaluations = evaluations_;
    }
    const bool roll_back = facts.rolled_back;
    RETURN_IF_ERROR(Report(std::move(facts)));
    if (roll_back) {
      RETURN_IF_ERROR(RollBack());
      continue;
    }
    const bool last = at_.step == setup_.total_steps || outcome_ == Outcome::kStopWithCheckpoint;
    RETURN_IF_ERROR(SaveIfDue(last));
    RETURN_IF_ERROR(checkpoints_->Poll());
  }
  return Finish(at_.step >= setup_.total_steps);
}

absl::StatusOr<v1::TrainerDone> RunningRank::Finish(bool finished) {
  // Resumed at its very end: the figures of the result are still wanted.
  if (finished && evaluation_due()) RETURN_IF_ERROR(Evaluate());
  LogDataSources();
  progress_.SetPhase(v1::PHASE_CHECKPOINT);
  RETURN_IF_ERROR(checkpoints_->Finish());
  progress_.SetState(v1::RANK_STATE_STOPPING);
  v1::TrainerToDaemon message;
  v1::TrainerDone& done = *message.mutable_done();
  done.set_finished(finished);
  done.set_last_step(at_.step);
  if (checkpoints_->enabled()) done.set_checkpoint_step(checkpoints_->last_step());
  if (finished && setup_.rank() == 0) {
    v1::JobResult& result = *done.mutable_result();
    result.set_steps(at_.step);
    result.set_tokens(at_.tokens);
    // Without a step of ours it is the checkpoint's, if that knows it.
    result.set_train_loss(at_.train_loss.value_or(std::numeric_limits<double>::quiet_NaN()));
    if (at_.validation_loss.has_value()) result.set_validation_loss(*at_.validation_loss);
    result.set_run_seconds(SecondsSince(created_));
    if (setup_.unigram_entropy.has_value()) result.set_unigram_entropy(*setup_.unigram_entropy);
    if (setup_.bigram_conditional_entropy.has_value()) {
      result.set_bigram_conditional_entropy(*setup_.bigram_conditional_entropy);
    }
    if (setup_.spec().data().source() == v1::DATA_SOURCE_TEXT) result.set_bytes_per_token(1);
    result.mutable_evaluations()->Add(evaluations_.begin(), evaluations_.end());
    AddDataSources(setup_.data, at_.position, result.mutable_data_sources());
    AddFamilies(setup_, *engine_, ceilings_.Get(), result.mutable_families());
    for (const std::int64_t peak : memory_peak_bytes_) {
      result.add_memory_peak_bytes_by_rank(peak);
      result.set_memory_peak_bytes(std::max(result.memory_peak_bytes(), peak));
    }
  }
  RETURN_IF_ERROR(link_.Send(message));
  return done;
}

void RunningRank::Notice(const std::string& type, const std::string& message) {
  if (setup_.rank() != 0) return;  // every rank sees the same
  LOG_WARNING("%s", message);
  v1::TrainerToDaemon wire;
  wire.mutable_notice()->set_type(type);
  wire.mutable_notice()->set_message(message);
  wire.mutable_notice()->set_severity(v1::EVENT_SEVERITY_WARNING);
  wire.mutable_notice()->set_step(at_.step + 1);
  link_.Send(wire).IgnoreError();
}

void RunningRank::Abandon(const std::string& why) {
  for (Communicator* communicator : {communicators_.gather.get(), communicators_.scatter.get()}) {
    if (communicator != nullptr) communicator->Abort(why);
  }
  for (Stream* stream : {&device_.gather(), &device_.scatter(), &device_.copy()}) {
    device_.Synchronize(*stream).IgnoreError();
  }
}

absl::Status RunningRank::Explain(const absl::Status& status) const {
  // All ranks learn of one that cannot save at the same time; the first to leave aborts the others'
  // communicators.
  if (CauseOf(status) == v1::FAILURE_CAUSE_CHECKPOINT) return status;
  for (const Communicator* communicator :
       {communicators_.gather.get(), communicators_.scatter.get()}) {
    if (communicator == nullptr) continue;
    const absl::Status health = communicator->Health();
    if (absl::IsUnavailable(health) || absl::IsDeadlineExceeded(health)) {
      return WithCause(health, v1::FAILURE_CAUSE_COMMUNICATION);
    }
  }
  return status;
}

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

// A failure is told before anything is torn down.
absl::StatusOr<v1::TrainerDone> JoinAndTrain(const TrainerRun& run, TrainerLink& link,
                                             Device& device, RankProgress& progress,
                                             FlightRecorder& recorder) {
  absl::StatusOr<RankSetup> setup = SetUpRank(run.start.assignment(), device);
  CeilingsCache ceilings(run.start);
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
  link.OnDump([&link, recorder] {
    v1::TrainerToDaemon message;
    *message.mutable_collective_dump() = MakeCollectiveDump(*recorder);
    link.Send(message).IgnoreError();
  });
  const PulseThread pulse(run.start.assignment().key(), link, progress, *recorder);
  return JoinAndTrain(run, link, device, progress, *recorder);
}

}  // namespace fsdp

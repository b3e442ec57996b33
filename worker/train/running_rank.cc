#include "worker/train/running_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

// Of a gather whose rate is the bus's: milliseconds of it.
constexpr std::int64_t kCpuBusBytes = std::int64_t{4} << 20;
constexpr std::int64_t kGpuBusBytes = std::int64_t{256} << 20;

double SecondsSince(MonotonicTime begin) {
  return absl::ToDoubleSeconds(Clock::Real().Now() - begin);
}

double FlopsOf(const FamilyTable& table) {
  double flops = 0;
  for (const FamilyTotals& totals : table) flops += totals.flops;
  return flops;
}

Outcome OutcomeOf(const std::optional<v1::TrainerStop>& stop) {
  if (!stop.has_value()) return Outcome::kGoOn;
  return stop->mode() == v1::STOP_MODE_CHECKPOINT ? Outcome::kStopWithCheckpoint : Outcome::kStop;
}

}  // namespace

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
  if (communicators_.gather != nullptr) RETURN_IF_ERROR(MeasureBus(*communicators_.gather));
  Communicator* gather = gather_.get();
  Communicator* scatter = scatter_ != nullptr ? scatter_.get() : gather;
  EngineOptions options;
  options.optimizer = setup_.optimizer;
  options.sample_families = true;
  ASSIGN_OR_RETURN(const AttentionKernels attention, Engine::AttentionFor(setup_.plan, device_));
  LOG_INFO("rank %d on %s; attention forward: %s, backward: %s", setup_.rank(), device_.name(),
           attention.forward, attention.backward);
  ASSIGN_OR_RETURN(engine_, Engine::Create(setup_.plan, options, device_, gather, scatter));
  ASSIGN_OR_RETURN(exchange_, RankExchange::Create(*engine_, device_, gather));
  CheckpointOptions checkpoint_options;
  counters_ =
      std::make_unique<RankCounters>(run_.counters ? run_.counters(device_) : CounterSource(),
                                     setup_.spec().profile(), *engine_, device_);
  profiler_ =
      std::make_unique<RankProfiler>(setup_, *engine_, device_, link_, recorder_, *counters_);
  checkpoint_options.store = run_.store;
  checkpoint_options.verdict_wait = run_.verdict_wait;
  checkpoints_ = std::make_unique<CheckpointManager>(setup_, *engine_, device_, *exchange_, link_,
                                                     checkpoint_options);
  ASSIGN_OR_RETURN(at_, checkpoints_->Restore());
  guard_.Resume(at_.numerics);
  if (at_.position > 0) LogDataSources();
  memory_peak_bytes_.assign(static_cast<std::size_t>(setup_.world_size()), memory_in_use_bytes());
  data_ =
      std::make_unique<ReadAhead>(*setup_.data.train, setup_.plan.split.Share(setup_.rank()).count,
                                  setup_.plan.input.reset_attention);

  v1::TrainerToDaemon message;
  message.mutable_running()->set_first_step(at_.step + 1);
  message.mutable_running()->set_start_seconds(SecondsSince(created_));
  RETURN_IF_ERROR(link_.Send(message));
  progress_.SetState(v1::RANK_STATE_RUNNING);
  progress_.SetStep(at_.step, 0);
  return absl::OkStatus();
}

// Before the arena takes the memory. Not through the flight recorder: it is no part of a step.
absl::Status RunningRank::MeasureBus(Communicator& communicator) {
  const std::int64_t bytes = device_.kind() == DeviceKind::kCpu ? kCpuBusBytes : kGpuBusBytes;
  const std::size_t allocated = device_.allocated_bytes();
  const absl::StatusOr<double> rate = MeasureCollective(communicator, device_, bytes);
  allocated_before_ += device_.allocated_bytes() - allocated;
  if (!rate.ok()) return WithCause(rate.status(), v1::FAILURE_CAUSE_COMMUNICATION);
  return ceilings_.AddCollective(*rate);
}

void RunningRank::LogDataSources() const {
  const std::string text = DataSourcesText(setup_.data, at_.position);
  if (setup_.rank() == 0 && !text.empty()) LOG_INFO("data up to step %d: %s", at_.step, text);
}

absl::StatusOr<StepResult> RunningRank::Step() {
  progress_.SetPhase(v1::PHASE_TRAIN);
  profiler_->BeginStep(at_.step + 1, reported_);
  const MonotonicTime begin = Clock::Real().Now();
  const std::int64_t position = at_.position + setup_.plan.split.Share(setup_.rank()).begin;
  // The next step's is read while this one computes.
  std::optional<std::int64_t> next;
  if (at_.step + 1 < setup_.total_steps) next = position + setup_.plan.input.global_batch;
  RETURN_IF_ERROR(WithCause(data_->Take(position, next), v1::FAILURE_CAUSE_DATA));
  Spend(&seconds_.data, "data", begin);
  StepInput input;
  input.step = at_.step + 1;
  lr_ = LearningRate(setup_.optimizer, input.step, setup_.total_steps);
  input.lr = lr_;
  input.tokens = data_->tokens();
  input.targets = data_->targets();
  input.document_begins = data_->document_begins();
  input.bounds = guard_.bounds();
  counters_->BeginStep();
  const MonotonicTime trains = Clock::Real().Now();
  ASSIGN_OR_RETURN(StepResult result, engine_->Step(input));
  counters_->EndStep();
  profiler_->AddHostSpan("train", trains);
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
  Spend(&seconds_.checkpoint, "roll_back", begin);
  return absl::OkStatus();
}

// Stops reach ranks at different times; all must end at the same step.
absl::Status RunningRank::Agree() {
  const MonotonicTime begin = Clock::Real().Now();
  const ShardSaver::Progress saved = checkpoints_->progress();
  const double mine[] = {static_cast<double>(OutcomeOf(link_.stop())),
                         static_cast<double>(memory_in_use_bytes()),
                         saved[0],
                         saved[1],
                         saved[2],
                         profiler_->Offer()};
  ASSIGN_OR_RETURN(const auto all, exchange_->Gather(mine, "agree"));
  int largest = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    largest = std::max(largest, static_cast<int>(all[rank][0]));
    memory_peak_bytes_[rank] =
        std::max(memory_peak_bytes_[rank], static_cast<std::int64_t>(all[rank][1]));
  }
  outcome_ = static_cast<Outcome>(largest);
  std::vector<double> offers;
  offers.reserve(all.size());
  for (const std::vector<double>& values : all) offers.push_back(values[5]);
  profiler_->OnOffers(offers);
  Spend(&seconds_.agree, "agree", begin);
  return checkpoints_->OnProgress(all, 2);
}

absl::Status RunningRank::Evaluate() {
  progress_.SetPhase(v1::PHASE_EVALUATE);
  const MonotonicTime begin = Clock::Real().Now();
  ASSIGN_OR_RETURN(Evaluations made, EvaluateAll(setup_, *engine_));
  at_.validation_loss = made.validation_loss;
  evaluations_ = std::move(made.sets);
  at_.evaluation_losses.clear();
  for (const v1::EvaluationLoss& set : evaluations_) {
    const bool finite = std::isfinite(set.loss());
    at_.evaluation_losses[set.name()] = finite ? std::optional(set.loss()) : std::nullopt;
  }
  Spend(&seconds_.evaluate, "evaluate", begin);
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
  Spend(&seconds_.checkpoint, "checkpoint", begin);
  return absl::OkStatus();
}

absl::Status RunningRank::Report(StepFacts facts) {
  const MonotonicTime now = Clock::Real().Now();
  seconds_.total = absl::ToDoubleSeconds(now - reported_);
  reported_ = now;
  facts.seconds = std::exchange(seconds_, {});
  facts.lr = lr_;
  const double flops = FlopsOf(engine_->families());
  facts.flops = flops - std::exchange(flops_, flops);
  facts.collectives = recorder_.Totals();
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
  const v1::DeviceCeilings& ceilings = ceilings_.Get();
  *message.mutable_step() =
      MakeStepReport(setup_, *engine_, facts, ceilings, *counters_, device_.name());
  profiler_->EndStep(message.step(), now, ceilings);
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
  if (const std::string cost = counters_->DescribeCost(); !cost.empty()) LOG_INFO("%s", cost);
  profiler_->Close("the training ended");
  profiler_.reset();
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
    if (setup_.bytes_per_token.has_value()) result.set_bytes_per_token(*setup_.bytes_per_token);
    result.mutable_evaluations()->Add(evaluations_.begin(), evaluations_.end());
    AddDataSources(setup_.data, at_.position, result.mutable_data_sources());
    AddFamilies(setup_, engine_->families(), ceilings_.Get(), counters_->Table(),
                result.mutable_families());
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

void RunningRank::Spend(double* seconds, const char* what, MonotonicTime begin) {
  *seconds += SecondsSince(begin);
  profiler_->AddHostSpan(what, begin);
}

void RunningRank::Abandon(const std::string& why) {
  if (profiler_ != nullptr) profiler_->Close(why);
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

}  // namespace fsdp

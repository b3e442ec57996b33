#ifndef FSDPCTL_WORKER_TRAIN_RUNNING_RANK_H_
#define FSDPCTL_WORKER_TRAIN_RUNNING_RANK_H_

// A rank between its commit and its end: the loop of steps and what comes between them.
//
// Thread rule: the step thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/trainer.pb.h"
#include "proto/support/clock.h"
#include "worker/comm/recording_communicator.h"
#include "worker/data/read_ahead.h"
#include "worker/profile/flight_recorder.h"
#include "worker/train/engine.h"
#include "worker/train/numeric_guard.h"
#include "worker/train/rank_counters.h"
#include "worker/train/rank_profiler.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_ceilings.h"
#include "worker/train/trainer_checkpoint.h"
#include "worker/train/trainer_evaluate.h"
#include "worker/train/trainer_exchange.h"
#include "worker/train/trainer_pulse.h"
#include "worker/train/trainer_report.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {

// What ranks agree to do after a step; the largest wins.
enum class Outcome : int { kGoOn = 0, kStopWithCheckpoint = 1, kStop = 2 };

// All of its references outlive it.
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
  absl::Status MeasureBus(Communicator& communicator);
  void LogDataSources() const;
  // The time since `begin` was spent on `what`.
  void Spend(double* seconds, const char* what, MonotonicTime begin);
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
  std::unique_ptr<RankCounters> counters_;
  std::unique_ptr<RankProfiler> profiler_;
  std::unique_ptr<CheckpointManager> checkpoints_;

  const MonotonicTime created_ = Clock::Real().Now();
  // What measuring the ceilings took and gave back.
  std::size_t allocated_before_ = device_.allocated_bytes();
  NumericGuard guard_;
  TrainingPosition at_;
  bool evaluated_ = false;                       // at at_.step
  std::vector<v1::EvaluationLoss> evaluations_;  // the newest
  // Why the step that was just made is followed by a rollback; empty: it is not.
  std::string rollback_;
  Outcome outcome_ = Outcome::kGoOn;
  std::vector<std::int64_t> memory_peak_bytes_;  // by rank
  double lr_ = 0;
  double flops_ = 0;  // of all steps that were reported
  MonotonicTime reported_ = Clock::Real().Now();
  TrainerSeconds seconds_;  // since reported_
  std::unique_ptr<ReadAhead> data_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_RUNNING_RANK_H_

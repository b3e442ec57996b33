#ifndef FSDPCTL_WORKER_TRAIN_RANK_PROFILER_H_
#define FSDPCTL_WORKER_TRAIN_RANK_PROFILER_H_

// Records steps of a running rank when it is asked to (TrainerProfile). All ranks that are asked
// begin with the same step: each tells the others after every step which request it has. What was
// recorded is written step by step, by a thread of its own, so that a rank that is killed leaves
// what it had; the training waits for nothing.
//
// Thread rule: the step thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/v1/trainer.pb.h"
#include "proto/support/clock.h"
#include "worker/checkpoint/task_thread.h"
#include "worker/device/device.h"
#include "worker/profile/flight_recorder.h"
#include "worker/profile/span_recorder.h"
#include "worker/train/engine.h"
#include "worker/train/rank_counters.h"
#include "worker/train/trainer_link.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {

class RankProfiler {
 public:
  // All outlive it.
  RankProfiler(const RankSetup& setup, Engine& engine, const Device& device, TrainerLink& link,
               const FlightRecorder& recorder, RankCounters& counters);
  // Waits for what is being written.
  ~RankProfiler();
  RankProfiler(const RankProfiler&) = delete;
  RankProfiler& operator=(const RankProfiler&) = delete;

  // After a step: names the request that waits here; 0: none does.
  double Offer();
  // What all ranks offered, by rank. When those that the request asks have it too, the next step is
  // the first.
  void OnOffers(std::span<const double> offers);

  // A step begins. `since`: when the one before ended, from which its time counts.
  void BeginStep(std::int64_t step, MonotonicTime since);
  // Something of the trainer's own, from `begin` to now.
  void AddHostSpan(std::string_view name, MonotonicTime begin);
  // The step's report is made, `end` is its end.
  void EndStep(const v1::StepReport& report, MonotonicTime end, const v1::DeviceCeilings& ceilings);
  // Nothing more comes: `why`, in words, where the training ended early. What was recorded is kept.
  void Close(const std::string& why);

 private:
  struct Recording;

  void Take();
  // What was asked for is not recorded.
  void GiveUp(const std::string& why);
  void Start(MonotonicTime since);
  void WriteStep();
  void Finish(const std::string& note);
  // What the window of the recording says. The writer's thread.
  void AddCounters(Recording& recording, v1::RankProfile* profile) const;
  void Send(const v1::TrainerProfileUpdate& update);
  void SendFailed(const std::string& profile, const std::string& why);
  [[nodiscard]] bool IsAsked(int rank) const;

  const RankSetup& setup_;
  Engine& engine_;
  const Device& device_;
  TrainerLink& link_;
  const FlightRecorder& flights_;
  RankCounters& counters_;
  std::optional<v1::TrainerProfile> waiting_;
  bool starts_ = false;  // with the next step
  // Shared with what is being written of it.
  std::shared_ptr<Recording> recording_;
  TaskThread writer_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_RANK_PROFILER_H_

#ifndef FSDPCTL_WORKER_TRAIN_RANK_COUNTERS_H_
#define FSDPCTL_WORKER_TRAIN_RANK_COUNTERS_H_

// The hardware counters of a running rank: windows beside its steps, and what they say of each
// kernel family; and the window of a recording. The step thread only marks steps; drivers are asked
// on a thread of its own.
//
// Thread rule: the step thread.

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "worker/device/device.h"
#include "worker/profile/counters/counter_driver.h"
#include "worker/profile/counters/counter_profile.h"
#include "worker/profile/counters/counter_windows.h"
#include "worker/profile/family_recorder.h"
#include "worker/train/engine.h"

namespace fsdp {

// What a backend brings; all null: its devices have no counters.
struct CounterSource {
  std::unique_ptr<CounterDriver> driver;
  // The number that the driver's kernel records give to a stream.
  std::function<absl::StatusOr<std::uint32_t>(Stream&)> stream_id;
};

class RankCounters {
 public:
  // `spec`: of the job; where it does not ask for windows, recordings alone have one. Both others
  // outlive this.
  RankCounters(CounterSource source, const v1::ProfileSpec& spec, Engine& engine, Device& device);

  // Around every step of the training.
  void BeginStep();
  void EndStep();

  [[nodiscard]] v1::ProfilerHealth Health() const;
  // Over all windows so far.
  [[nodiscard]] MeasuredTable Table() const;

  // What the windows cost, measured: steps within them and between them. Empty where there were
  // none of either.
  [[nodiscard]] std::string DescribeCost() const;

  // The window of a recording, as CounterWindows has it.
  void Hold();
  [[nodiscard]] HoldState hold() const { return windows_.hold(); }
  [[nodiscard]] std::string RefusedBecause() const { return windows_.Health().message(); }
  std::future<absl::StatusOr<CounterReading>> Release() { return windows_.Release(); }

 private:
  CounterWindows::Use Read(const CounterReading& reading);
  absl::Status StartWindows();

  Engine& engine_;
  Device& device_;
  const bool has_driver_;
  const bool enabled_;
  const std::function<absl::StatusOr<std::uint32_t>(Stream&)> stream_id_;
  std::int64_t num_steps_ = 0;
  bool started_ = false;
  MonotonicTime last_end_;     // of a step
  bool was_sampling_ = false;  // then
  // Seconds of the newest steps, by where they ran; those that a window's edge cut are in neither.
  std::deque<double> within_, between_;
  CounterProfile profile_;
  mutable std::mutex mutex_;
  MeasuredTable table_{};   // guarded by mutex_
  CounterWindows windows_;  // ends first: its thread uses the others
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_RANK_COUNTERS_H_

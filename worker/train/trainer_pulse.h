#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_PULSE_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_PULSE_H_

// Liveness and progress of a rank, told every 250 ms by a thread that training cannot block.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "fsdp/v1/trainer.pb.h"
#include "worker/profile/flight_recorder.h"
#include "worker/train/trainer_link.h"

namespace fsdp {

// Where a rank is. Written by the step thread, read by the pulse. Thread-safe.
class RankProgress {
 public:
  void SetState(v1::RankState state);
  void SetPhase(v1::Phase phase);
  // A step ended; `seconds` of it count towards the median (0: not).
  void SetStep(std::int64_t step, double seconds);

  [[nodiscard]] v1::Phase phase() const;
  [[nodiscard]] std::int64_t step() const;
  // Fills state, step, phase and the median step.
  void Fill(v1::RankPulse* pulse) const;

 private:
  mutable std::mutex mutex_;
  v1::RankState state_ = v1::RANK_STATE_STARTING;
  v1::Phase phase_ = v1::PHASE_START;
  std::int64_t step_ = 0;
  std::vector<double> seconds_;  // of the last steps, a ring
  std::size_t next_ = 0;
};

class PulseThread {
 public:
  // All outlive it.
  PulseThread(const v1::EpochKey& key, TrainerLink& link, const RankProgress& progress,
              const FlightRecorder& recorder);
  ~PulseThread();
  PulseThread(const PulseThread&) = delete;
  PulseThread& operator=(const PulseThread&) = delete;

 private:
  void Loop();

  const v1::EpochKey key_;
  TrainerLink& link_;
  const RankProgress& progress_;
  const FlightRecorder& recorder_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_PULSE_H_

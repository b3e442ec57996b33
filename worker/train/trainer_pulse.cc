#include "worker/train/trainer_pulse.h"

#include <algorithm>
#include <chrono>

namespace fsdp {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(250);
constexpr std::size_t kMedianSteps = 33;

}  // namespace

void RankProgress::SetState(v1::RankState state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = state;
}

void RankProgress::SetPhase(v1::Phase phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  phase_ = phase;
}

void RankProgress::SetStep(std::int64_t step, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ = step;
  if (seconds <= 0) return;
  if (seconds_.size() < kMedianSteps) {
    seconds_.push_back(seconds);
  } else {
    seconds_[next_] = seconds;
    next_ = (next_ + 1) % kMedianSteps;
  }
}

v1::Phase RankProgress::phase() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return phase_;
}

std::int64_t RankProgress::step() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return step_;
}

void RankProgress::Fill(v1::RankPulse* pulse) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  pulse->set_state(state_);
  pulse->set_phase(phase_);
  pulse->set_step(step_);
  if (seconds_.empty()) return;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  pulse->set_median_step_seconds(*middle);
}

PulseThread::PulseThread(const v1::EpochKey& key, TrainerLink& link, const RankProgress& progress,
                         const FlightRecorder& recorder)
    : key_(key), link_(link), progress_(progress), recorder_(recorder), thread_([this] {
        Loop();
      }) {}

PulseThread::~PulseThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PulseThread::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::int64_t beats = 1; !stopping_; ++beats) {
    v1::TrainerToDaemon message;
    v1::RankPulse& pulse = *message.mutable_pulse();
    pulse.set_beats(beats);
    *pulse.mutable_key() = key_;
    progress_.Fill(&pulse);
    const CollectiveStatus status = recorder_.Status();
    pulse.set_collective_started(status.last_started);
    pulse.set_collective_finished(status.last_finished);
    pulse.set_collective(status.pending);
    pulse.set_collective_pending_seconds(status.pending_seconds);
    pulse.set_median_collective_seconds(status.median_seconds);
    lock.unlock();
    // A lost link ends the process elsewhere.
    link_.Send(message).IgnoreError();
    lock.lock();
    wake_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

}  // namespace fsdp

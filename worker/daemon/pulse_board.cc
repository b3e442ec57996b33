#include "worker/daemon/pulse_board.h"

#include <algorithm>

namespace fsdp::daemon {

void PulseBoard::Begin(const v1::RunningRank& rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rank_ = rank;
  pulse_.Clear();
  pulse_time_ = clock_.Now();
}

void PulseBoard::SetState(v1::RankState state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rank_) rank_->set_state(state);
}

void PulseBoard::SetStep(std::int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rank_) rank_->set_step(std::max(rank_->step(), step));
}

void PulseBoard::SetPulse(const v1::RankPulse& pulse) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!rank_) return;
  pulse_ = pulse;
  pulse_time_ = clock_.Now();
  rank_->set_step(std::max(rank_->step(), pulse.step()));
}

void PulseBoard::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  rank_.reset();
}

std::optional<v1::RunningRank> PulseBoard::running() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rank_;
}

std::optional<v1::RankPulse> PulseBoard::pulse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!rank_) return std::nullopt;
  v1::RankPulse pulse = pulse_;
  *pulse.mutable_key() = rank_->key();
  pulse.set_state(rank_->state());
  pulse.set_step(rank_->step());
  if (!pulse.collective().empty()) {
    pulse.set_collective_pending_seconds(pulse.collective_pending_seconds() +
                                         absl::ToDoubleSeconds(clock_.Now() - pulse_time_));
  }
  return pulse;
}

}  // namespace fsdp::daemon

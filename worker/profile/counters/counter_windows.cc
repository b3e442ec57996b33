#include "worker/profile/counters/counter_windows.h"

#include <utility>

namespace fsdp {

CounterWindows::CounterWindows(const CounterWindowOptions& options,
                               std::unique_ptr<CounterDriver> driver, Reader reader,
                               const Clock& clock)
    : clock_(clock),
      driver_(std::move(driver)),
      reader_(std::move(reader)),
      policy_(options, driver_ != nullptr) {}

CounterWindows::~CounterWindows() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (released_.has_value()) released_->set_value(absl::CancelledError("the rank ended"));
}

void CounterWindows::StartThread() {
  if (driver_ != nullptr && !thread_.joinable()) thread_ = std::thread([this] { Loop(); });
}

void CounterWindows::OnStep() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Waking a thread costs the step a microsecond or two.
  const bool wakes = policy_.WatchesSteps(num_steps_++);
  if (!wakes) return;
  woken_ = true;
  wake_.notify_all();
}

void CounterWindows::Request() {
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_.Request();
  woken_ = true;
  wake_.notify_all();
}

void CounterWindows::Hold() {
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_.Hold();
  woken_ = true;
  wake_.notify_all();
}

HoldState CounterWindows::hold() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return policy_.hold();
}

std::future<absl::StatusOr<CounterReading>> CounterWindows::Release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_.Release();
  std::promise<absl::StatusOr<CounterReading>> promise;
  std::future<absl::StatusOr<CounterReading>> reading = promise.get_future();
  if (policy_.hold() != HoldState::kReleased) {
    promise.set_value(absl::FailedPreconditionError("no window was open"));
    return reading;
  }
  released_ = std::move(promise);
  woken_ = true;
  wake_.notify_all();
  return reading;
}

fsdp::v1::ProfilerHealth CounterWindows::Health() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  fsdp::v1::ProfilerHealth health = health_;
  health.set_state(NameOf(policy_.state()));
  health.set_message(policy_.message());
  return health;
}

bool CounterWindows::is_sampling() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return policy_.state() == CounterState::kSampling;
}

absl::Duration CounterWindows::RunOnce() {
  CounterPolicy::Decision decision;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    decision = policy_.Next(clock_.Now(), num_steps_);
  }
  if (decision.action == CounterPolicy::Action::kWait) return decision.wait;
  if (decision.action == CounterPolicy::Action::kBegin) {
    Begin();
  } else {
    End();
  }
  return absl::ZeroDuration();
}

void CounterWindows::Begin() {
  // A recording begins some steps after its window, and lasts for several.
  const bool held = hold() == HoldState::kPending;
  const absl::Status status =
      driver_->Begin(held ? CounterDriver::Pace::kLong : CounterDriver::Pace::kShort);
  const std::lock_guard<std::mutex> lock(mutex_);
  // From here on, not from the call: what the driver takes to begin is none of the window.
  policy_.OnBegun(status, clock_.Now(), num_steps_);
}

void CounterWindows::End() {
  absl::StatusOr<CounterReading> reading = driver_->End();
  Use use;
  // Only a window that is open can be released.
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<std::promise<absl::StatusOr<CounterReading>>> released =
      std::exchange(released_, std::nullopt);
  lock.unlock();
  if (released.has_value()) {
    released->set_value(reading);
  } else if (reading.ok()) {
    use = reader_(*reading);
  }
  lock.lock();
  policy_.OnEnded(reading.status(), clock_.Now());
  if (!reading.ok()) return;
  health_.set_windows(health_.windows() + 1);
  health_.set_samples(health_.samples() + use.samples);
  for (const auto& dropped : {reading->dropped, use.dropped}) {
    for (const auto& [reason, count] : dropped) (*health_.mutable_dropped())[reason] += count;
  }
  auto& overhead = *health_.mutable_overhead_seconds();
  for (const auto& [kind, seconds] : reading->overhead_seconds) overhead[kind] += seconds;
  overhead["evaluate"] += use.seconds;
}

void CounterWindows::Loop() {
  for (;;) {
    const absl::Duration wait = RunOnce();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto due = [this] { return woken_ || stopping_; };
    if (wait == absl::InfiniteDuration()) {
      wake_.wait(lock, due);
    } else {
      wake_.wait_for(lock, absl::ToChronoNanoseconds(wait), due);
    }
    woken_ = false;
    if (stopping_) return;
  }
}

}  // namespace fsdp

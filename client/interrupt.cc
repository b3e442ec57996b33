#include "client/interrupt.h"

#include <chrono>
#include <utility>

namespace fsdp {

void Interrupt::Cancel() {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return;
  cancelled_ = true;
  for (const auto& [id, callback] : callbacks_) callback();
  changed_.notify_all();
}

bool Interrupt::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool Interrupt::WaitFor(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(duration),
                           [this] { return cancelled_; });
}

Interrupt::Scope::Scope(Interrupt* interrupt, std::function<void()> on_cancel)
    : interrupt_(interrupt) {
  if (interrupt_ == nullptr) return;
  const std::lock_guard lock(interrupt_->mutex_);
  if (interrupt_->cancelled_) on_cancel();
  id_ = interrupt_->next_id_++;
  interrupt_->callbacks_.emplace(id_, std::move(on_cancel));
}

Interrupt::Scope::~Scope() {
  if (interrupt_ == nullptr) return;
  const std::lock_guard lock(interrupt_->mutex_);
  interrupt_->callbacks_.erase(id_);
}

}  // namespace fsdp

#ifndef FSDPCTL_CLIENT_INTERRUPT_H_
#define FSDPCTL_CLIENT_INTERRUPT_H_

// One switch that ends waits and streams early (Ctrl-C). Thread-safe; Cancel must not be called
// from a signal handler (a thread that waits for the signal calls it).

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "absl/time/time.h"

namespace fsdp {

class Interrupt {
 public:
  // Sticky. Runs every registered callback once.
  void Cancel();
  [[nodiscard]] bool cancelled() const;

  // Waits that long; true at once when cancelled before or meanwhile.
  bool WaitFor(absl::Duration duration);

  // Calls `on_cancel` when cancelled (at once when it already is) until the scope ends. Both run
  // under one lock: after the scope's end the callback is not running any more.
  class Scope {
   public:
    Scope(Interrupt* interrupt, std::function<void()> on_cancel);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt* interrupt_;
    int id_ = 0;
  };

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  int next_id_ = 1;
  std::map<int, std::function<void()>> callbacks_;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_INTERRUPT_H_

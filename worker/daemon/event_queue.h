#ifndef FSDPCTL_WORKER_DAEMON_EVENT_QUEUE_H_
#define FSDPCTL_WORKER_DAEMON_EVENT_QUEUE_H_

// What other threads bring to the daemon's core thread, in order.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace fsdp::daemon {

// Thread-safe.
class EventQueue {
 public:
  using Event = std::function<void()>;

  // PostBounded waits while this many events are queued.
  explicit EventQueue(std::size_t capacity = 4096) : capacity_(capacity) {}

  // Never waits. Dropped after Close.
  void Post(Event event) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return;
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  // For a producer that may outrun the core (a trainer's output): waits for room.
  void PostBounded(Event event) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || events_.size() < capacity_; });
    if (closed_) return;
    events_.push_back(std::move(event));
    lock.unlock();
    changed_.notify_all();
  }

  // The core thread: runs what is queued, waiting up to `timeout` for the first event.
  void RunFor(std::chrono::nanoseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return !events_.empty(); });
    std::deque<Event> events = std::exchange(events_, {});
    lock.unlock();
    changed_.notify_all();
    for (const Event& event : events) event();
  }

  // Nothing is taken any more, nobody waits.
  void Close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      events_.clear();
    }
    changed_.notify_all();
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Event> events_;
  bool closed_ = false;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_EVENT_QUEUE_H_

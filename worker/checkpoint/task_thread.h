#ifndef FSDPCTL_WORKER_CHECKPOINT_TASK_THREAD_H_
#define FSDPCTL_WORKER_CHECKPOINT_TASK_THREAD_H_

// What a save does beside the training: a thread that runs tasks one after the other.
//
// Thread rule: Run from one thread at a time; tasks run on the thread of the queue.
// Lifetime: the destructor runs what is queued, then joins.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace fsdp {

class TaskThread {
 public:
  TaskThread() : thread_([this] { Loop(); }) {}
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // The result of `task()`, once those before it have run.
  template <typename Task>
  auto Run(Task task) -> std::future<decltype(task())> {
    auto packaged = std::make_shared<std::packaged_task<decltype(task())()>>(std::move(task));
    auto result = packaged->get_future();
    Add([packaged] { (*packaged)(); });
    return result;
  }

 private:
  void Add(std::function<void()> task);
  void Loop();

  std::mutex mutex_;  // guards the three below it
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

template <typename T>
bool IsReady(const std::future<T>& result) {
  return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_TASK_THREAD_H_

#ifndef FSDPCTL_WORKER_DEVICE_CPU_THREAD_POOL_H_
#define FSDPCTL_WORKER_DEVICE_CPU_THREAD_POOL_H_

// The few threads that one rank's operations run on. Threads sleep between calls (ranks share
// cores, so nothing spins).
//
// Thread rule: any thread may call ParallelFor. While one caller holds the workers, another runs
// its tasks alone on its own thread, so a stream's thread never waits for the compute stream.
// Determinism: which thread runs a task is not fixed; tasks must not depend on it.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace fsdp::cpu {

// A non-owning callable `void(int64 task, int slot)`; `slot` in [0, num_threads) is unique among
// the threads that run tasks of one call at the same time.
class TaskRef {
 public:
  template <typename F>
  TaskRef(F& callable)  // NOLINT(google-explicit-constructor): call sites pass lambdas
      : object_(&callable), call_([](void* object, std::int64_t task, int slot) {
          (*static_cast<F*>(object))(task, slot);
        }) {}
  void operator()(std::int64_t task, int slot) const { call_(object_, task, slot); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, int);
};

class ThreadPool {
 public:
  // Starts num_threads - 1 threads; the caller of ParallelFor is the last one.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs run(0..num_tasks-1, slot) and returns when all are done.
  void ParallelFor(std::int64_t num_tasks, TaskRef run);

 private:
  void Worker(int slot);
  void Drain(const TaskRef& run, std::int64_t num_tasks, int slot);

  std::mutex call_mutex_;  // held by the caller that has the workers
  std::mutex mutex_;       // guards what follows, except next_
  std::condition_variable start_, done_;
  const TaskRef* run_ = nullptr;
  std::int64_t num_tasks_ = 0;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::atomic<std::int64_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_THREAD_POOL_H_

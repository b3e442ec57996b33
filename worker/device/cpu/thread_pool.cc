#include "worker/device/cpu/thread_pool.h"

#include <pthread.h>

namespace fsdp::cpu {

ThreadPool::ThreadPool(int num_threads) {
  for (int slot = 1; slot < num_threads; ++slot) {
    threads_.emplace_back([this, slot] { Worker(slot); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Drain(const TaskRef& run, std::int64_t num_tasks, int slot) {
  while (true) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks) return;
    run(task, slot);
  }
}

void ThreadPool::ParallelFor(std::int64_t num_tasks, TaskRef run) {
  std::unique_lock<std::mutex> call(call_mutex_, std::try_to_lock);
  if (num_tasks <= 1 || threads_.empty() || !call.owns_lock()) {
    for (std::int64_t task = 0; task < num_tasks; ++task) run(task, 0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    run_ = &run;
    num_tasks_ = num_tasks;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
  }
  start_.notify_all();
  Drain(run, num_tasks, 0);
  // A worker that wakes after this sees no call and goes back to sleep.
  std::unique_lock<std::mutex> lock(mutex_);
  run_ = nullptr;
  done_.wait(lock, [this] { return running_ == 0; });
}

void ThreadPool::Worker(int slot) {
  pthread_setname_np(pthread_self(), "fsdp-cpu");
  std::uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stopping_ || (generation_ != seen && run_ != nullptr); });
    if (stopping_) return;
    seen = generation_;
    const TaskRef* run = run_;
    const std::int64_t num_tasks = num_tasks_;
    ++running_;
    lock.unlock();
    Drain(*run, num_tasks, slot);
    lock.lock();
    if (--running_ == 0) done_.notify_all();
  }
}

}  // namespace fsdp::cpu

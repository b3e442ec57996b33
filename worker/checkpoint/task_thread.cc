#include "worker/checkpoint/task_thread.h"

#include <pthread.h>

namespace fsdp {

TaskThread::~TaskThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TaskThread::Add(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void TaskThread::Loop() {
  pthread_setname_np(pthread_self(), "fsdp-save");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes before anybody can wait for the next one
    lock.lock();
  }
}

}  // namespace fsdp

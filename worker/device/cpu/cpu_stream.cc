#include "worker/device/cpu/cpu_stream.h"

#include <pthread.h>

#include <utility>

namespace fsdp {

CpuStream::CpuStream(std::string name, Mode mode) : name_(std::move(name)), mode_(mode) {
  if (mode_ == Mode::kThread) thread_ = std::thread([this] { Loop(); });
}

CpuStream::~CpuStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status CpuStream::Enqueue(std::function<absl::Status()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!status_.ok()) return status_;
  if (mode_ == Mode::kThread) {
    queue_.push_back({std::move(work), nullptr});
    lock.unlock();
    changed_.notify_all();
    return absl::OkStatus();
  }
  lock.unlock();
  absl::Status result = work();
  if (!result.ok()) {
    lock.lock();
    status_ = result;
  }
  return result;
}

void CpuStream::AddMark(std::function<void(const absl::Status& status)> mark) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (mode_ == Mode::kThread) {
    queue_.push_back({nullptr, std::move(mark)});
    lock.unlock();
    changed_.notify_all();
    return;
  }
  const absl::Status status = status_;
  lock.unlock();
  mark(status);
}

absl::Status CpuStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  return std::exchange(status_, absl::OkStatus());
}

void CpuStream::Loop() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    const absl::Status before = status_;
    lock.unlock();
    absl::Status after = before;
    if (item.mark) {
      item.mark(before);
    } else if (before.ok()) {
      after = item.work();
    }
    item = {};  // what the closure holds is released before the stream counts as idle
    lock.lock();
    status_ = std::move(after);
    busy_ = false;
    changed_.notify_all();
  }
}

absl::StatusOr<CpuStream*> AsCpuStream(Stream& stream) {
  auto* cpu = dynamic_cast<CpuStream*>(&stream);
  if (cpu == nullptr) {
    return absl::InvalidArgumentError(
        "stream: belongs to another backend; pass a stream of the CPU device");
  }
  return cpu;
}

}  // namespace fsdp

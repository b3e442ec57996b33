#include "coordinator/store/write_queue.h"

#include <future>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/log.h"

namespace fsdp::coordinator {

void WriteQueue::Start(Commit commit) {
  commit_ = std::move(commit);
  thread_ = std::thread([this] { Run(); });
}

void WriteQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void WriteQueue::Write(StoreBatch batch, JobStore::Done done) {
  std::unique_lock lock(mutex_);
  if (!failed_.ok()) {
    const absl::Status failed = failed_;
    lock.unlock();
    if (done) done(failed);
    return;
  }
  queue_.push_back({std::move(batch), std::move(done)});
  lock.unlock();
  wake_.notify_one();
}

absl::Status WriteQueue::Flush() {
  std::promise<absl::Status> durable;
  Write({}, [&durable](absl::Status status) { durable.set_value(std::move(status)); });
  return durable.get_future().get();
}

absl::Status WriteQueue::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (failed_.ok()) {
    failed_ = absl::UnavailableError(absl::StrCat("the store failed: ", status.message()));
    status.ForEachPayload([this](absl::string_view url, const absl::Cord& payload) {
      failed_.SetPayload(url, payload);
    });
    LOG_ERROR("%s; no more writes are taken", std::string(failed_.message()));
  }
  return failed_;
}

void WriteQueue::Run() {
  std::deque<Pending> group;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || !group.empty(); });
      if (queue_.empty() && group.empty()) return;
      while (!queue_.empty() && group.size() < static_cast<std::size_t>(max_batches_)) {
        group.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    const absl::Time start = absl::Now();
    const absl::StatusOr<std::size_t> committed = commit_(group);
    std::size_t num_done = group.size();
    absl::Status status;
    if (committed.ok()) {
      num_done = *committed;
    } else {
      status = Fail(committed.status());
      const std::lock_guard lock(mutex_);
      for (Pending& waiting : queue_) group.push_back(std::move(waiting));
      queue_.clear();
      num_done = group.size();
    }
    if (observer_.on_flush) {
      observer_.on_flush(absl::Now() - start, static_cast<std::int64_t>(num_done));
    }
    for (std::size_t i = 0; i < num_done; ++i) {
      if (group.front().done) group.front().done(status);
      group.pop_front();
    }
  }
}

}  // namespace fsdp::coordinator

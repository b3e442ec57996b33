#ifndef FSDPCTL_COORDINATOR_STORE_WRITE_QUEUE_H_
#define FSDPCTL_COORDINATOR_STORE_WRITE_QUEUE_H_

// The writing half of a durable JobStore: batches wait in order, one thread commits as many as it
// can at a time and then runs their `done`. After a failure nothing is written any more: memory and
// store would part.
//
// Thread-safe, but for Start and Stop.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/job_store.h"

namespace fsdp::coordinator {

class WriteQueue {
 public:
  struct Pending {
    StoreBatch batch;
    JobStore::Done done;
  };
  // On the queue's thread: makes the first batches of `group` (not empty) durable, in order, and
  // says how many; at least one. An error is final, and every later write gets it, payloads and
  // all.
  using Commit = std::function<absl::StatusOr<std::size_t>(const std::deque<Pending>& group)>;

  explicit WriteQueue(StoreObserver observer, int max_batches_per_flush = 1024)
      : observer_(std::move(observer)), max_batches_(max_batches_per_flush) {}
  // As Stop.
  ~WriteQueue() { Stop(); }
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  void Start(Commit commit);
  // Commits what waits, then ends the thread.
  void Stop();

  void Write(StoreBatch batch, JobStore::Done done);
  // Blocks until everything written so far is durable and its `done` has run.
  absl::Status Flush();

 private:
  void Run();
  // `status` is why; what every later write is answered with.
  absl::Status Fail(const absl::Status& status);

  const StoreObserver observer_;
  const int max_batches_;
  Commit commit_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Pending> queue_;
  bool stopping_ = false;
  absl::Status failed_;
  std::thread thread_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_WRITE_QUEUE_H_

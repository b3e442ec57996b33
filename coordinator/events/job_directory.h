#ifndef FSDPCTL_COORDINATOR_EVENTS_JOB_DIRECTORY_H_
#define FSDPCTL_COORDINATOR_EVENTS_JOB_DIRECTORY_H_

// What readers see of jobs: the durable state, and a wake-up when something changed. Readers never
// wait for the coordinator's lock, and never hold it up.
//
// Thread-safe.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "fsdp/v1/job_record.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

using JobSnapshot = std::shared_ptr<const v1::Job>;

struct ListedJob {
  JobSnapshot job;
  std::int64_t position = 0;
};

class JobDirectory {
 public:
  // Called when something about the job (its record, events, logs, metrics) changed, on the store's
  // thread: it must be short.
  using Wake = std::function<void()>;
  // Ends with its last owner; a Wake that is running is waited for.
  class Subscription;

  // Older revisions than the known one are ignored.
  void Publish(JobSnapshot job, std::int64_t position);
  void Remove(const JobId& job);
  // Null: no such job.
  [[nodiscard]] JobSnapshot Find(const JobId& job) const;
  // Newest first: at most `limit` that match, with a position below `before` (0: from the newest).
  [[nodiscard]] std::vector<ListedJob> List(
      std::int64_t before, std::int64_t limit,
      const std::function<bool(const v1::Job&)>& matches) const;

  std::shared_ptr<Subscription> Subscribe(const JobId& job, Wake wake);
  void Notify(const JobId& job);
  // Wakes every subscription (at shutdown).
  void NotifyAll();

 private:
  mutable std::shared_mutex mutex_;
  std::map<JobId, ListedJob> jobs_;
  std::map<std::int64_t, JobId> by_position_;

  std::mutex subscriptions_mutex_;
  std::multimap<JobId, std::weak_ptr<Subscription>> subscriptions_;
};

class JobDirectory::Subscription {
 public:
  explicit Subscription(Wake wake) : wake_(std::move(wake)) {}
  void Run() {
    const std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }
  // No Wake runs after this.
  void Cancel() {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Wake wake_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_EVENTS_JOB_DIRECTORY_H_

#include "coordinator/events/job_directory.h"

#include <utility>

#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {

void JobDirectory::Publish(JobSnapshot job, std::int64_t position) {
  const JobId id = JobIdOf(*job);
  {
    const std::unique_lock lock(mutex_);
    ListedJob& entry = jobs_[id];
    if (entry.job != nullptr && entry.job->revision() >= job->revision()) return;
    entry = {std::move(job), position};
    by_position_[position] = id;
  }
  Notify(id);
}

void JobDirectory::Remove(const JobId& job) {
  {
    const std::unique_lock lock(mutex_);
    const auto entry = jobs_.find(job);
    if (entry == jobs_.end()) return;
    by_position_.erase(entry->second.position);
    jobs_.erase(entry);
  }
  Notify(job);
}

JobSnapshot JobDirectory::Find(const JobId& job) const {
  const std::shared_lock lock(mutex_);
  const auto entry = jobs_.find(job);
  return entry == jobs_.end() ? nullptr : entry->second.job;
}

std::vector<ListedJob> JobDirectory::List(
    std::int64_t before, std::int64_t limit,
    const std::function<bool(const v1::Job&)>& matches) const {
  const std::shared_lock lock(mutex_);
  std::vector<ListedJob> result;
  auto row = before > 0 ? by_position_.lower_bound(before) : by_position_.end();
  while (row != by_position_.begin() && static_cast<std::int64_t>(result.size()) < limit) {
    --row;
    const ListedJob& entry = jobs_.at(row->second);
    if (matches(*entry.job)) result.push_back(entry);
  }
  return result;
}

std::shared_ptr<JobDirectory::Subscription> JobDirectory::Subscribe(const JobId& job, Wake wake) {
  auto subscription = std::make_shared<Subscription>(std::move(wake));
  const std::lock_guard lock(subscriptions_mutex_);
  subscriptions_.emplace(job, subscription);
  return subscription;
}

void JobDirectory::Notify(const JobId& job) {
  std::vector<std::shared_ptr<Subscription>> wanted;
  {
    const std::lock_guard lock(subscriptions_mutex_);
    auto [row, end] = subscriptions_.equal_range(job);
    while (row != end) {
      if (auto subscription = row->second.lock()) {
        wanted.push_back(std::move(subscription));
        ++row;
      } else {
        row = subscriptions_.erase(row);
      }
    }
  }
  for (const auto& subscription : wanted) subscription->Run();
}

void JobDirectory::NotifyAll() {
  std::vector<std::shared_ptr<Subscription>> all;
  {
    const std::lock_guard lock(subscriptions_mutex_);
    for (const auto& [job, weak] : subscriptions_) {
      if (auto subscription = weak.lock()) all.push_back(std::move(subscription));
    }
  }
  for (const auto& subscription : all) subscription->Run();
}

}  // namespace fsdp::coordinator

#include "coordinator/schedule/queue_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp::coordinator {

QueueLedger::QueueLedger(const QueuePolicies& policies, const ClusterView& view,
                         const std::vector<ActiveJob>& running,
                         const std::vector<QueuedDemand>& waiting)
    : policies_(&policies) {
  for (const WorkerView& worker : view.workers) {
    if (worker.capacity) ++totals_[worker.device];
  }
  for (const auto& [name, policy] : policies) queues_.insert(name);
  for (const ActiveJob& job : running) {
    QueueBalance& balance = balances_[{job.entry.queue, job.device}];
    (job.stopping ? balance.yielding : balance.used) += job.devices;
  }
  for (const QueuedDemand& item : waiting) {
    balances_[{item.entry.queue, item.demand.device}].waiting += item.demand.world_size();
  }
  for (const auto& [key, balance] : balances_) {
    queues_.insert(key.first);
    if (balance.used > 0 || balance.waiting > 0) weights_[key.second] += WeightOf(key.first);
  }
}

double QueueLedger::WeightOf(const std::string& queue) const {
  const auto policy = policies_->find(queue);
  return policy == policies_->end() ? 1 : policy->second.weight;
}

QueueBalance QueueLedger::Balance(const std::string& queue, v1::DeviceType device) const {
  const auto balance = balances_.find({queue, device});
  return balance == balances_.end() ? QueueBalance() : balance->second;
}

int QueueLedger::Total(v1::DeviceType device) const {
  const auto total = totals_.find(device);
  return total == totals_.end() ? 0 : total->second;
}

DeviceLimits QueueLedger::LimitsOf(const std::string& queue, v1::DeviceType device) const {
  const auto policy = policies_->find(queue);
  return policy == policies_->end() ? DeviceLimits() : policy->second.LimitsOf(device);
}

int QueueLedger::Borrowed(const std::string& queue, v1::DeviceType device) const {
  return std::max(0, Balance(queue, device).used - LimitsOf(queue, device).quota);
}

bool QueueLedger::IsWithinQuota(const std::string& queue, v1::DeviceType device,
                                int devices) const {
  return Balance(queue, device).used + devices <= LimitsOf(queue, device).quota;
}

double QueueLedger::PerWeight(const std::string& queue, v1::DeviceType device) const {
  return Balance(queue, device).used / WeightOf(queue);
}

double QueueLedger::Share(const std::string& queue, v1::DeviceType device) const {
  const auto weights = weights_.find(device);
  const int total = Total(device);
  const int used = Balance(queue, device).used;
  if (used == 0 || total == 0 || weights == weights_.end() || weights->second <= 0) return 0;
  return used / (total * WeightOf(queue) / weights->second);
}

void QueueLedger::Grant(const std::string& queue, v1::DeviceType device, int devices) {
  balances_[{queue, device}].used += devices;
}

void QueueLedger::Yield(const std::string& queue, v1::DeviceType device, int devices) {
  QueueBalance& balance = balances_[{queue, device}];
  balance.used -= devices;
  balance.yielding += devices;
}

std::string QueueLedger::Describe(const std::string& queue, v1::DeviceType device) const {
  const DeviceLimits limits = LimitsOf(queue, device);
  const QueueBalance balance = Balance(queue, device);
  const std::string max = limits.max ? absl::StrCat("max ", *limits.max) : "no max";
  return absl::StrFormat("queue '%s' uses %d of quota %d (%s, %.2f of its fair share)", queue,
                         balance.used, limits.quota, max, Share(queue, device));
}

}  // namespace fsdp::coordinator

#ifndef FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_LEDGER_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_LEDGER_H_

// Who holds how many devices, against quotas and fair shares. Pure arithmetic.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/schedule/gang_scheduler.h"
#include "coordinator/schedule/queue_policy.h"

namespace fsdp::coordinator {

// A job that holds workers.
struct ActiveJob {
  QueueEntry entry;
  v1::DeviceType device = v1::DEVICE_TYPE_CPU;
  // Workers that are not released.
  int devices = 0;
  // Being stopped, for whatever reason: its workers come free.
  bool stopping = false;
  // A stop costs it no more than the step that it is in.
  bool saves = false;
  // Since it was placed.
  absl::Duration ran = absl::ZeroDuration();
};

// What one queue has of one type of device.
struct QueueBalance {
  // Held by jobs that are not being stopped, or promised to jobs in this pass.
  int used = 0;
  // Held by jobs that are being stopped.
  int yielding = 0;
  // Asked for by jobs that wait.
  int waiting = 0;
};

class QueueLedger {
 public:
  // `policies` outlives the ledger.
  QueueLedger(const QueuePolicies& policies, const ClusterView& view,
              const std::vector<ActiveJob>& running, const std::vector<QueuedDemand>& waiting);

  [[nodiscard]] QueueBalance Balance(const std::string& queue, v1::DeviceType device) const;
  // Devices of the type, held or free.
  [[nodiscard]] int Total(v1::DeviceType device) const;
  // Zero for a queue that is not configured.
  [[nodiscard]] DeviceLimits LimitsOf(const std::string& queue, v1::DeviceType device) const;
  [[nodiscard]] int Borrowed(const std::string& queue, v1::DeviceType device) const;
  // With `devices` more it is still within its quota.
  [[nodiscard]] bool IsWithinQuota(const std::string& queue, v1::DeviceType device,
                                   int devices) const;
  // What it uses for each unit of its weight: the queue with the least goes first.
  [[nodiscard]] double PerWeight(const std::string& queue, v1::DeviceType device) const;
  // What it uses over its fair part of the cluster, by weight among the queues that use or want
  // devices of the type: 1 is exactly that part.
  [[nodiscard]] double Share(const std::string& queue, v1::DeviceType device) const;

  void Grant(const std::string& queue, v1::DeviceType device, int devices);
  // A job that is to be stopped gives its devices back.
  void Yield(const std::string& queue, v1::DeviceType device, int devices);

  // "queue 'research' uses 4 of quota 4 (max 8, 0.50 of its fair share)".
  [[nodiscard]] std::string Describe(const std::string& queue, v1::DeviceType device) const;

  // Every queue with jobs, or configured.
  [[nodiscard]] const std::set<std::string>& queues() const { return queues_; }

 private:
  using Key = std::pair<std::string, v1::DeviceType>;
  [[nodiscard]] double WeightOf(const std::string& queue) const;

  const QueuePolicies* policies_;
  std::map<Key, QueueBalance> balances_;
  std::map<v1::DeviceType, int> totals_;
  // Of the queues that use or want devices.
  std::map<v1::DeviceType, double> weights_;
  std::set<std::string> queues_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_LEDGER_H_

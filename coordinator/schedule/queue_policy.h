#ifndef FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_POLICY_H_
#define FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_POLICY_H_

// What the configuration says of each queue, ready for decisions. Pure data.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fsdp/v1/queue.pb.h"

namespace fsdp::coordinator {

struct DeviceLimits {
  int quota = 0;
  // Absent: none.
  std::optional<int> max;
};

struct QueuePolicy {
  double weight = 1;
  std::map<v1::DeviceType, DeviceLimits> devices;
  v1::ReclaimPolicy reclaim = v1::RECLAIM_POLICY_ANY;
  // Its jobs take the place of those with a lower priority.
  bool preempts_within = false;
  // Absent: the job's own grace period.
  std::optional<absl::Duration> grace;
  absl::Duration min_run = absl::ZeroDuration();
  bool without_checkpoint = false;

  [[nodiscard]] DeviceLimits LimitsOf(v1::DeviceType device) const;
};

// By name. Empty: queues are not configured; every name is one, and nothing limits it.
using QueuePolicies = std::map<std::string, QueuePolicy>;

// Of a configuration with its defaults.
QueuePolicies PoliciesOf(const v1::QueueConfig& config);

// "batch, research"
std::string QueueNames(const QueuePolicies& policies);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SCHEDULE_QUEUE_POLICY_H_

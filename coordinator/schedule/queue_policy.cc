#include "coordinator/schedule/queue_policy.h"

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {

DeviceLimits QueuePolicy::LimitsOf(v1::DeviceType device) const {
  const auto limits = devices.find(device);
  return limits == devices.end() ? DeviceLimits() : limits->second;
}

QueuePolicies PoliciesOf(const v1::QueueConfig& config) {
  QueuePolicies policies;
  for (const v1::QueueSpec& queue : config.queues()) {
    QueuePolicy& policy = policies[queue.name()];
    policy.weight = queue.weight();
    for (const v1::DeviceQuota& quota : queue.devices()) {
      DeviceLimits& limits = policy.devices[quota.device()];
      limits.quota = quota.quota();
      if (quota.has_max()) limits.max = quota.max();
    }
    const v1::PreemptionSpec& preemption = queue.preemption();
    policy.reclaim = preemption.reclaim();
    policy.preempts_within = preemption.within_queue() == v1::WITHIN_QUEUE_POLICY_LOWER_PRIORITY;
    if (preemption.has_grace_seconds()) policy.grace = absl::Seconds(preemption.grace_seconds());
    policy.min_run = absl::Seconds(preemption.min_run_seconds());
    policy.without_checkpoint = preemption.without_checkpoint();
  }
  return policies;
}

std::string QueueNames(const QueuePolicies& policies) {
  std::string names;
  for (const auto& [name, policy] : policies)
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  return names;
}

}  // namespace fsdp::coordinator

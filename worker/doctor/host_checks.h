#ifndef FSDPCTL_WORKER_DOCTOR_HOST_CHECKS_H_
#define FSDPCTL_WORKER_DOCTOR_HOST_CHECKS_H_

#include "worker/doctor/finding.h"
#include "worker/doctor/host_facts.h"

namespace fsdp::doctor {

// What the facts mean: a finding for every check, those that are well among them, in a fixed order.
// Pure.
Findings CheckHost(const HostFacts& facts);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_WORKER_DOCTOR_HOST_CHECKS_H_

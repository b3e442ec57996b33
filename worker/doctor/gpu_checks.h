#ifndef FSDPCTL_WORKER_DOCTOR_GPU_CHECKS_H_
#define FSDPCTL_WORKER_DOCTOR_GPU_CHECKS_H_

#include "worker/doctor/finding.h"
#include "worker/doctor/host_facts.h"

namespace fsdp::doctor {

// Driver, libraries and devices, and whether they fit each other. A host without a GPU is well.
// Pure.
Findings CheckGpus(const HostFacts& facts);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_WORKER_DOCTOR_GPU_CHECKS_H_

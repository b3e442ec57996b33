#ifndef FSDPCTL_COORDINATOR_RPC_SERVICES_H_
#define FSDPCTL_COORDINATOR_RPC_SERVICES_H_

// The services of our own that the coordinator serves. A new one is added here, and nowhere else:
// rules, metrics, health and the tests over all methods follow.

#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace fsdp::coordinator {

const std::vector<const google::protobuf::ServiceDescriptor*>& OurServices();

// INVALID_ARGUMENT NAME_INVALID unless `name` is "jobs/{id}".
absl::Status CheckJobName(const std::string& name);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_SERVICES_H_

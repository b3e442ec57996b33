#ifndef FSDPCTL_CLIENT_DOCTOR_CLUSTER_CHECKS_H_
#define FSDPCTL_CLIENT_DOCTOR_CLUSTER_CHECKS_H_

// What the coordinator's answers say about the cluster. Pure.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "worker/doctor/finding.h"

namespace fsdp::doctor {

// GetCluster's answer, and the client's wall clock around it.
struct ClusterAnswer {
  v1::GetClusterResponse cluster;
  absl::Time sent;
  absl::Time received;
};

// What a look at a metrics endpoint from this machine gave.
struct EndpointProbe {
  // "coordinator" or a worker's id.
  std::string subject;
  std::string address;
  // Not OK: the message says why it cannot be reached.
  absl::Status status;
};

// The coordinator: does it answer, does its release fit `client_version`, do the clocks agree.
//   `answer` not OK: one fault, which carries the error
Findings CheckCoordinator(const std::string& server, const absl::StatusOr<ClusterAnswer>& answer,
                          const std::string& client_version);

// The workers, each and against each other: state, clock, release, driver, address of ranks, one
// device under two names.
Findings CheckWorkers(const std::vector<v1::Worker>& workers,
                      const std::string& coordinator_version);

Findings CheckEndpoints(const std::vector<EndpointProbe>& probes);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_CLIENT_DOCTOR_CLUSTER_CHECKS_H_

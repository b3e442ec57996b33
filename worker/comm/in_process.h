#ifndef FSDPCTL_WORKER_COMM_IN_PROCESS_H_
#define FSDPCTL_WORKER_COMM_IN_PROCESS_H_

// Ranks as threads of one process: collectives read their peers' memory directly. For tests and for
// small local runs.
//
// A rank that destroys its communicator, or aborts it, is gone for its peers: what they have
// pending returns UNAVAILABLE and names it.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace fsdp {

struct InProcessOptions {
  // How long a rank waits for its peers in one collective.
  absl::Duration timeout = absl::Seconds(60);
};

// One communicator per rank, in rank order. Each belongs to one thread and outlives what that
// thread has in flight. Collectives must run in streams of their own threads (or inline).
//   INVALID_ARGUMENT  world_size < 1
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CreateInProcessGroup(
    int world_size, const InProcessOptions& options = {});

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_IN_PROCESS_H_

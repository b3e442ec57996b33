#ifndef FSDPCTL_WORKER_COMM_NCCL_NCCL_ENVIRONMENT_H_
#define FSDPCTL_WORKER_COMM_NCCL_NCCL_ENVIRONMENT_H_

// NCCL takes part of its settings from the process's environment only. These calls write there what
// the user has not set; before NCCL's first call and before there are threads.

#include <string>

#include "absl/status/status.h"

namespace fsdp {

// What holds wherever a rank runs: collectives of different communicators start on the device in
// the order in which the host issued them, which keeps two communicators from waiting for each
// other.
void PrepareNccl();

// Ranks of one machine that only talk to each other: sockets stay on loopback, no InfiniBand.
void PrepareLocalNccl();

// Ranks that share one device: NCCL refuses two of a host on one, so each process gets a host of
// its own, and the bytes go over sockets, without InfiniBand. For tests of correctness; slow.
void PrepareSharedDevice(int rank);

// Rank-to-rank sockets on the interface that has `address`; empty: loopback.
//   NOT_FOUND  no interface of this machine has it
absl::Status PrepareNcclInterface(const std::string& address);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_NCCL_NCCL_ENVIRONMENT_H_

#ifndef FSDPCTL_WORKER_COMM_NCCL_NCCL_STATUS_H_
#define FSDPCTL_WORKER_COMM_NCCL_NCCL_STATUS_H_

// NCCL's results as statuses, with the text of the call and the rank that made it. Thread-safe.

#include <nccl.h>

#include <string_view>

#include "absl/status/status.h"

namespace fsdp {

// OK for ncclSuccess and ncclInProgress.
//   UNAVAILABLE       a peer has gone or the network has failed (ncclRemoteError, ncclSystemError)
//   INVALID_ARGUMENT  ncclInvalidArgument, ncclInvalidUsage (two ranks on one device)
//   INTERNAL          a CUDA error inside NCCL, or an error of its own
// `communicator` may be null; NCCL's own last words are taken from it.
absl::Status NcclToStatus(ncclResult_t result, std::string_view call, int rank,
                          ncclComm_t communicator = nullptr);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_NCCL_NCCL_STATUS_H_

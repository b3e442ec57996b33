#ifndef FSDPCTL_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define FSDPCTL_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_

// Ranks as processes, each with a CUDA device, over NCCL.
//
// The communicator is non-blocking: connecting, the first collective (which connects the
// transports) and every later one are polled with the deadline, never waited for inside NCCL, so
// Abort always gets through. A watching thread looks at NCCL's asynchronous error and at how long
// the oldest collective has been pending; an error or a timeout aborts the communicator, which ends
// its kernels and so lets the host out of a Synchronize. What such kernels have written is garbage
// and the stream reports no error: ask Health after Synchronize before trusting a result.
//
// Sums are formed by NCCL's own algorithms: the same bits on every run of the same ranks and
// devices, but not in rank order; bf16 is rounded at every hop.

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"

namespace fsdp {

// The bytes of a fresh id, for one communicator of one epoch. Opens the socket at which the ranks
// meet in this process: rank 0 calls it, and stays alive until all have connected.
//   UNAVAILABLE  no network interface to listen on
absl::StatusOr<std::string> MakeNcclId();
inline constexpr std::size_t kNcclIdBytes = 128;

struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  std::string unique_id;  // of MakeNcclId, the same on every rank
  // Of connecting, and of one pending collective.
  absl::Duration timeout = absl::Seconds(120);
  BufferRegistration registration = kDefaultRegistration;
};

// Connects to every peer (blocks). `device` is a CUDA device and outlives the communicator; called
// from its step thread.
//   INVALID_ARGUMENT   rank, world size or id; two ranks on one device of one host
//   DEADLINE_EXCEEDED  a rank did not come within the timeout
//   UNAVAILABLE        a peer is gone, or the network
//   RESOURCE_EXHAUSTED the device has no few bytes left
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(const NcclOptions& options,
                                                                     Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_

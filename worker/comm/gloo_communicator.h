#ifndef FSDPCTL_WORKER_COMM_GLOO_COMMUNICATOR_H_
#define FSDPCTL_WORKER_COMM_GLOO_COMMUNICATOR_H_

// Ranks as processes over TCP, through gloo's transport. The collectives are direct exchanges of
// our own: each rank sends each peer what that peer needs, in segments, and sums in rank order, so
// the bits do not depend on timing.
//
// Sockets are plain TCP: `bind_address` decides which network they are on. SIGPIPE is ignored in
// the process from the first Create on (a write to a dead peer must be an error, not a death).

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/rendezvous_store.h"

namespace fsdp {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  // Keys of this communicator in the store; unique in the epoch ("gather", "scatter").
  std::string name = "default";
  // Host name or address that peers reach this rank at; empty: loopback.
  std::string bind_address;
  // Of one wait for a peer, both while connecting and in a collective.
  absl::Duration timeout = absl::Seconds(120);
  // Bytes of a slice that are in flight at a time in reduce-scatter; scratch is twice this for each
  // rank.
  std::int64_t segment_bytes = 1 << 20;
};

// Connects to every peer (blocks). `store` is used during the call only.
//   INVALID_ARGUMENT   rank or world size
//   DEADLINE_EXCEEDED  a rank did not come to the rendezvous; named
//   UNAVAILABLE        the store or a peer is gone; or `bind_address` cannot be bound
absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_GLOO_COMMUNICATOR_H_

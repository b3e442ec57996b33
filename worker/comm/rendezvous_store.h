#ifndef FSDPCTL_WORKER_COMM_RENDEZVOUS_STORE_H_
#define FSDPCTL_WORKER_COMM_RENDEZVOUS_STORE_H_

// How the ranks of one epoch find each other: a small write-once key-value store. Implementations:
// the daemon link (the coordinator's store, fresh in every epoch) and a folder on one machine.
//
// Thread rule: thread-safe. Values are at most 64 KiB.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp {

class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  //   UNAVAILABLE  the store cannot be reached (the daemon is gone, the folder was removed)
  virtual absl::Status Put(const std::string& name, const std::string& value) = 0;
  // Blocks until the value exists.
  //   DEADLINE_EXCEEDED  it did not within `timeout`; names the key
  //   UNAVAILABLE        as Put
  virtual absl::StatusOr<std::string> Get(const std::string& name, absl::Duration timeout) = 0;
};

// Files in `directory` (which exists and is empty when the epoch begins); a value appears by
// rename. Get looks every 2 ms: for local launches, not for networks.
std::unique_ptr<RendezvousStore> CreateDirectoryStore(const std::string& directory);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_RENDEZVOUS_STORE_H_

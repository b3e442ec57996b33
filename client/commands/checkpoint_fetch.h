#ifndef FSDPCTL_CLIENT_COMMANDS_CHECKPOINT_FETCH_H_
#define FSDPCTL_CLIENT_COMMANDS_CHECKPOINT_FETCH_H_

// Copies a checkpoint from the workers' disks to this machine, a piece at a time through the
// coordinator. Each piece and each whole file is checked against its CRC-32C. What is there already
// is not fetched again: a copy that was broken off goes on where it was. The manifest comes last,
// so that a copy is a checkpoint once it is whole, and not before.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace fsdp {

struct FetchRequest {
  std::string job;  // jobs/ID
  v1::CheckpointInfo checkpoint;
  std::string root;  // gets the step's folder
};

// Told of the bytes that are there so far, and of all.
using FetchProgress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

// The copy's folder.
//   DATA_LOSS  what came is not what the manifest, or the coordinator, says
//   errors of ReadCheckpoint; of the file system, with the path
absl::StatusOr<std::string> FetchCheckpoint(Client& client, const FetchRequest& request,
                                            const FetchProgress& progress);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_CHECKPOINT_FETCH_H_

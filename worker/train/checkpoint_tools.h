#ifndef FSDPCTL_WORKER_TRAIN_CHECKPOINT_TOOLS_H_
#define FSDPCTL_WORKER_TRAIN_CHECKPOINT_TOOLS_H_

// `fsdp-trainer checkpoint list|inspect|verify|diff|reshard`: checkpoints in folders of this
// machine. `fsdpctl checkpoint` runs it.

#include <span>
#include <string>

namespace fsdp {

extern const char kCheckpointUsage[];

// Returns the exit code: 0, 1 failed, 2 usage, 11 damaged or not there; of diff also 20: they
// differ.
int CheckpointMain(std::span<const std::string> arguments);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_CHECKPOINT_TOOLS_H_

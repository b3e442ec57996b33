#ifndef FSDPCTL_WORKER_TRAIN_RUN_TOOL_H_
#define FSDPCTL_WORKER_TRAIN_RUN_TOOL_H_

// `fsdp-trainer run` and `fsdp-trainer profile`: jobs on this machine, without a cluster.

#include <span>
#include <string>

#include "worker/train/trainer_backend.h"

namespace fsdp {

extern const char kRunUsage[];
extern const char kProfileUsage[];

// The arguments begin with the command's name. Exit codes as fsdp-trainer --help says.
int RunMain(std::span<const std::string> arguments, const TrainerBackend& backend);
int ProfileMain(std::span<const std::string> arguments, const TrainerBackend& backend);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_RUN_TOOL_H_

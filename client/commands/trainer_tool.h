#ifndef FSDPCTL_CLIENT_COMMANDS_TRAINER_TOOL_H_
#define FSDPCTL_CLIENT_COMMANDS_TRAINER_TOOL_H_

// Verbs that need the engine's readers, which this program does not link: fsdp-trainer, beside
// fsdpctl, has them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli.h"

namespace fsdp {

// --bin-dir.
FlagSpec BinDirFlag();

// A folder on this machine: `argument` itself, or the newest checkpoint of the job that it names.
//   NOT_FOUND            it is neither, or that checkpoint is not on this machine
//   FAILED_PRECONDITION  the job has no checkpoint
absl::StatusOr<std::string> CheckpointFolder(CommandRun& run, const std::string& argument);

// Is it a path rather than a job's name?
bool IsPath(const std::string& argument);

// Runs `fsdp-trainer ARGUMENTS` with our output and returns its exit code. `interrupted`: what to
// say when the user ends it.
int RunTrainerTool(CommandRun& run, const std::vector<std::string>& arguments,
                   const std::string& interrupted);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_TRAINER_TOOL_H_

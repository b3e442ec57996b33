#ifndef FSDPCTL_CLIENT_COMMANDS_BESIDE_H_
#define FSDPCTL_CLIENT_COMMANDS_BESIDE_H_

// Verbs that another program of this release does, which lies beside fsdpctl.

#include <string>
#include <vector>

#include "client/cli.h"

namespace fsdp {

// Runs `program ARGUMENTS` with our output and returns its exit code. `verb` is what needs it, for
// the message when it is missing.
int RunBeside(CommandRun& run, const std::string& program,
              const std::vector<std::string>& arguments, const std::string& verb);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_BESIDE_H_

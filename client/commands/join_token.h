#ifndef FSDPCTL_CLIENT_COMMANDS_JOIN_TOKEN_H_
#define FSDPCTL_CLIENT_COMMANDS_JOIN_TOKEN_H_

// `fsdpctl ca join-token`: makes, lists and revokes what lets hosts in.

#include <string>
#include <vector>

#include "client/commands/common.h"

namespace fsdp {

// `arguments`: nothing, `list`, or `revoke` and ids. Returns the exit code.
int RunJoinToken(CommandRun& run, const std::vector<std::string>& arguments);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_JOIN_TOKEN_H_

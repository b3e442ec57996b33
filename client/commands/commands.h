#ifndef FSDPCTL_CLIENT_COMMANDS_COMMANDS_H_
#define FSDPCTL_CLIENT_COMMANDS_COMMANDS_H_

// The verbs, one file each. To add one: write its file, declare it here, list it in commands.cc;
// help and completion follow from its table.

#include "client/cli.h"

namespace fsdp {

Command SubmitCommand();
Command ValidateCommand();
Command PlanCommand();
Command ListCommand();
Command GetCommand();
Command DescribeCommand();
Command LogsCommand();
Command WaitCommand();
Command CancelCommand();
Command SuspendCommand();
Command ResumeCommand();
Command RestartCommand();
Command DeleteCommand();
Command TopCommand();
Command EventsCommand();
Command ProfileCommand();
Command CollectivesCommand();
Command MetricsCommand();
Command WorkersCommand();
Command DrainCommand();
Command UncordonCommand();
Command QueuesCommand();
Command MaintenanceCommand();
Command CheckpointCommand();
Command ExportCommand();
Command TokenizeCommand();
Command AdminCommand();
Command CaCommand();
Command LocalCommand();
Command ContextCommand();
Command VersionCommand();
Command DoctorCommand();
Command CompletionCommand();
Command HelpCommand();

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_COMMANDS_H_

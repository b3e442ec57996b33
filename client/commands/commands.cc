#include "client/commands/commands.h"

namespace fsdp {

const std::vector<Command>& Commands() {
  static const auto& commands = *new std::vector<Command>{
      SubmitCommand(),   ValidateCommand(), PlanCommand(),   ListCommand(),     GetCommand(),
      DescribeCommand(), LogsCommand(),     WaitCommand(),   CancelCommand(),   SuspendCommand(),
      ResumeCommand(),   RestartCommand(),  DeleteCommand(), TopCommand(),      EventsCommand(),
      MetricsCommand(),  WorkersCommand(),  DrainCommand(),  UncordonCommand(), CheckpointCommand(),
      ExportCommand(),   TokenizeCommand(), LocalCommand(),  VersionCommand(),  CompletionCommand(),
      HelpCommand(),
  };
  return commands;
}

}  // namespace fsdp

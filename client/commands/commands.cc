#include "client/commands/commands.h"

namespace fsdp {

const std::vector<Command>& Commands() {
  static const auto& commands = *new std::vector<Command>{
      SubmitCommand(),      ValidateCommand(), PlanCommand(),        ListCommand(),
      GetCommand(),         DescribeCommand(), LogsCommand(),        WaitCommand(),
      CancelCommand(),      SuspendCommand(),  ResumeCommand(),      RestartCommand(),
      DeleteCommand(),      TopCommand(),      EventsCommand(),      ProfileCommand(),
      CollectivesCommand(), MetricsCommand(),  WorkersCommand(),     DrainCommand(),
      UncordonCommand(),    QueuesCommand(),   MaintenanceCommand(), CheckpointCommand(),
      ExportCommand(),      TokenizeCommand(), AdminCommand(),       CaCommand(),
      ContextCommand(),     LocalCommand(),    DoctorCommand(),      VersionCommand(),
      CompletionCommand(),  HelpCommand(),
  };
  return commands;
}

}  // namespace fsdp

#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachArgument(run, [&run](Client& client, const std::string& name) {
    const absl::Status status = client.DeleteJob(name);
    if (status.ok()) run.out() << "job " << IdOf(name) << ": deleted\n";
    return status;
  });
}

}  // namespace

Command DeleteCommand() {
  Command command;
  command.name = "delete";
  command.aliases = {"rm"};
  command.summary = "Remove finished jobs with their events, logs and metrics";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.description =
      "The job, its events, logs and metrics are gone; checkpoints stay where they are. A job "
      "that\n"
      "is not finished is refused.";
  command.examples = {{"fsdpctl delete my-job-1a2b3c4d", "forget it"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

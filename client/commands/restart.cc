#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(run, [&run](Client& client, const std::string& job) {
    return client.RestartJob(job, run.flags().GetString("reason"));
  });
}

}  // namespace

Command RestartCommand() {
  Command command;
  command.name = "restart";
  command.summary = "End the current epoch and go on from the last checkpoint";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.flags = {ReasonFlag("Shown in the job"), OutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "A failed or cancelled job goes back into the queue with fresh restart budgets.";
  command.examples = {{"fsdpctl restart my-job-1a2b3c4d", "after the cause of a failure is gone"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

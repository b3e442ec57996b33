#include <utility>

#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(run, [&run](Client& client, const std::string& job) -> absl::StatusOr<v1::Job> {
    auto response = client.RestartJob(job, run.flags().GetString("reason"));
    if (!response.ok()) return response.status();
    PrintWarnings(run, response->warnings());
    return std::move(*response->mutable_job());
  });
}

}  // namespace

Command RestartCommand() {
  Command command;
  command.name = "restart";
  command.summary = "Start jobs again from their last checkpoint";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.flags = {ReasonFlag("Shown in the job"), OutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "For what runs, and for what has ended without success: the epoch of a running job ends and\n"
      "another starts; a FAILED or CANCELLED job goes back into the queue with fresh budgets.\n"
      "A SUSPENDED job is resumed instead. Without a checkpoint a job begins from the start.";
  command.examples = {{"fsdpctl restart my-job-1a2b3c4d", "after the cause of a failure is gone"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include <utility>

#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(
      run,
      [&run](Client& client, const std::string& job) -> absl::StatusOr<v1::Job> {
        auto response = client.RestartJob(job, run.flags().GetString("reason"));
        if (!response.ok()) return response.status();
        PrintWarnings(run, response->warnings());
        return std::move(*response->mutable_job());
      },
      [](const v1::Job& job) { return GentleStopNote("restarting", job); });
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
  command.flags = {ReasonFlag("Shown in the job"),
                   JobOutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "For what runs, and for what has ended without success: a running job saves first\n"
      "(checkpoint.dir; without one a warning says what is lost), then its epoch ends and another\n"
      "starts; a FAILED or CANCELLED job goes back into the queue with fresh budgets, from the "
      "last\n"
      "checkpoint that it wrote. A SUSPENDED job is resumed instead. Without a checkpoint a job\n"
      "begins from the start.";
  command.examples = {{"fsdpctl restart my-job-1a2b3c4d", "after the cause of a failure is gone"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

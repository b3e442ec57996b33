#include <utility>

#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(run, [&run](Client& client, const std::string& job) -> absl::StatusOr<v1::Job> {
    auto response = client.SuspendJob(job, run.flags().GetString("reason"));
    if (!response.ok()) return response.status();
    PrintWarnings(run, response->warnings());
    return std::move(*response->mutable_job());
  });
}

}  // namespace

Command SuspendCommand() {
  Command command;
  command.name = "suspend";
  command.summary = "Checkpoint and stop jobs, to be resumed later";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.flags = {ReasonFlag("Shown in the job"), OutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "The job checkpoints, frees its workers and stays SUSPENDED until fsdpctl resume. Without\n"
      "checkpoint.dir in its spec what it has trained is lost, and a warning says so.";
  command.examples = {
      {"fsdpctl suspend my-job-1a2b3c4d --reason \"make room\"", "free its devices for now"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

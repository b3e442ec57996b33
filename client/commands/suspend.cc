#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(run, [&run](Client& client, const std::string& job) {
    return client.SuspendJob(job, run.flags().GetString("reason"));
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
      "The job checkpoints (when its spec has a directory), frees its workers and stays SUSPENDED\n"
      "until fsdpctl resume.";
  command.examples = {
      {"fsdpctl suspend my-job-1a2b3c4d --reason \"make room\"", "free its devices for now"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

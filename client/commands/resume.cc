#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachJob(run,
                    [](Client& client, const std::string& job) { return client.ResumeJob(job); });
}

}  // namespace

Command ResumeCommand() {
  Command command;
  command.name = "resume";
  command.summary = "Put suspended jobs back into the queue";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.flags = {JobOutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "Takes fsdpctl suspend back: the jobs go on from their last checkpoint, under the same\n"
      "budgets. Jobs that have ended (FAILED, CANCELLED) are started again by fsdpctl restart.";
  command.examples = {{"fsdpctl resume my-job-1a2b3c4d", "go on from the checkpoint"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

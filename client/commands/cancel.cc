#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

// The job after it has stopped, for callers that need its workers free.
absl::StatusOr<v1::Job> CancelAndWait(CommandRun& run, Client& client, const std::string& name) {
  auto job = client.CancelJob(name, run.flags().GetString("reason"));
  if (!job.ok() || !run.flags().GetBool("wait")) return job;
  const absl::Status status = client.WatchJob(name, {}, [&job](const v1::Job& now) {
    job = now;
    return true;
  });
  if (!status.ok()) return status;
  return job;
}

int Run(CommandRun& run) {
  return ForEachJob(run, [&run](Client& client, const std::string& job) {
    return CancelAndWait(run, client, job);
  });
}

}  // namespace

Command CancelCommand() {
  Command command;
  command.name = "cancel";
  command.summary = "Stop jobs";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.description =
      "Saves nothing: the last checkpoint that was written stays, the steps after it are lost\n"
      "(fsdpctl suspend saves first). Trainers get SIGTERM and the spec's grace period. "
      "Cancelling\n"
      "a cancelled job is no error; fsdpctl restart starts one again, from that checkpoint. The\n"
      "exit code tells whether the request was accepted.";
  command.flags = {ReasonFlag("Shown in the job"),
                   {.name = "wait", .short_name = 'w', .help = "Until the job has stopped"},
                   JobOutputFlag({"table", "json", "yaml", "name"})};
  command.examples = {{"fsdpctl cancel my-job-1a2b3c4d --reason \"wrong data\"", "stop it"},
                      {"fsdpctl cancel --wait $(fsdpctl list --state RUNNING -o name)",
                       "stop everything that runs, and see it stopped"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

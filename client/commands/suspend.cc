#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/error.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

// A refusal in the words of this verb, with what to do instead.
absl::Status Explain(const absl::Status& refusal, const std::string& name) {
  const auto info = GetErrorInfo(refusal);
  if (!absl::IsFailedPrecondition(refusal) || !info.has_value()) return refusal;
  const auto state = info->metadata.find("state");
  if (state == info->metadata.end()) return refusal;
  const std::string id = IdOf(name);
  const std::string why = state->second == "SUSPENDED"
                              ? absl::StrCat("already; `fsdpctl resume ", id, "` takes it back")
                          : state->second == "CANCELLING"
                              ? std::string("and saves nothing any more: it cannot be suspended")
                              : std::string("and has nothing left to suspend");
  absl::Status status =
      absl::FailedPreconditionError(absl::StrCat("job ", id, " is ", state->second, " ", why));
  refusal.ForEachPayload([&status](absl::string_view type, const absl::Cord& payload) {
    status.SetPayload(type, payload);
  });
  return status;
}

// The job once it has stopped, for callers that need its workers or its checkpoint.
absl::StatusOr<v1::Job> WaitUntilSuspended(CommandRun& run, Client& client, v1::Job job) {
  StreamOptions options;
  options.on_reconnect = ReconnectNote(run);
  const absl::Status status = client.WatchJob(job.name(), options, [&job](const v1::Job& now) {
    job = now;
    return now.state() != v1::JOB_STATE_SUSPENDED;
  });
  if (!status.ok()) return status;
  if (job.state() == v1::JOB_STATE_SUSPENDED) return job;
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", IdOf(job.name()), " ended as ", EnumText(job.state()), " before it was suspended"));
}

int Run(CommandRun& run) {
  return ForEachJob(
      run,
      [&run](Client& client, const std::string& name) -> absl::StatusOr<v1::Job> {
        auto response = client.SuspendJob(name, run.flags().GetString("reason"));
        if (!response.ok()) return Explain(response.status(), name);
        PrintWarnings(run, response->warnings());
        if (!run.flags().GetBool("wait")) return std::move(*response->mutable_job());
        return WaitUntilSuspended(run, client, std::move(*response->mutable_job()));
      },
      [](const v1::Job& job) { return GentleStopNote("suspending", job); });
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
  command.flags = {ReasonFlag("Shown in the job"),
                   {.name = "wait",
                    .short_name = 'w',
                    .help = "Until the job is SUSPENDED: saved, and its workers free"},
                   JobOutputFlag({"table", "json", "yaml", "name"})};
  command.description =
      "The job checkpoints, frees its workers and stays SUSPENDED until fsdpctl resume. Without\n"
      "checkpoint.dir in its spec what it has trained is lost, and a warning says so. The command\n"
      "returns while a running job still saves, and the job is RUNNING until it has; --wait stays\n"
      "until it is SUSPENDED. A job that ended before that is exit code 2.";
  command.examples = {
      {"fsdpctl suspend my-job-1a2b3c4d --reason \"make room\"", "free its devices for now"},
      {"fsdpctl suspend --wait my-job-1a2b3c4d", "and return once they are free"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

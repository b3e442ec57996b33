#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/views.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  StreamOptions options;
  options.on_reconnect = ReconnectNote(run);
  const bool follow = run.flags().GetBool("follow");
  const bool json = run.flags().GetString("output") == "jsonl";
  const absl::Status status =
      (*client)->StreamEvents(run.flags().positional().front(), run.flags().GetInt("since"), follow,
                              options, [&](const v1::JobEvent& event) {
                                if (json) {
                                  run.out() << ToJsonLine(event);
                                } else {
                                  run.out() << EventLine(event, run.out_style()) << "\n";
                                }
                                if (follow) run.out() << std::flush;
                                return run.out().good();
                              });
  return status.ok() ? ToInt(ExitCode::kOk) : run.Fail(status);
}

}  // namespace

Command EventsCommand() {
  Command command;
  command.name = "events";
  command.summary = "What happened to a job; -f follows";
  command.arguments = "JOB";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.flags = {{.name = "follow", .short_name = 'f', .help = "Until the job is finished"},
                   {.name = "since",
                    .kind = FlagKind::kInt,
                    .value_name = "SEQUENCE",
                    .help = "Only events after this sequence number",
                    .default_value = "0"},
                   OutputFlag({"text", "jsonl"})};
  command.examples = {
      {"fsdpctl events my-job-1a2b3c4d", "its history"},
      {"fsdpctl events -f my-job-1a2b3c4d -o jsonl", "for a program, as it happens"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/views.h"

namespace fsdp {
namespace {

absl::StatusOr<std::string> Snapshot(CommandRun& run, Client& client) {
  const auto cluster = client.GetCluster();
  if (!cluster.ok()) return cluster.status();
  v1::ListJobsRequest live;
  for (const auto state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
                           v1::JOB_STATE_RECOVERING, v1::JOB_STATE_CANCELLING}) {
    live.add_states(state);
  }
  const auto jobs = client.ListJobs(live, static_cast<int>(run.flags().GetInt("limit")));
  if (!jobs.ok()) return jobs.status();
  const auto workers = client.ListWorkers();
  if (!workers.ok()) return workers.status();
  return TopText(*cluster, *jobs, *workers, run.world().clock->WallNow(), run.out_style());
}

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const bool once = run.flags().GetBool("once") || !run.world().out_is_terminal;
  for (;;) {
    const auto text = Snapshot(run, **client);
    // A coordinator that restarts is no reason to leave: the screen says so until it is back.
    if (!text.ok() && (once || ExitCodeForStatus(text.status()) != ExitCode::kUnreachable)) {
      return text.status().code() == absl::StatusCode::kCancelled ? ToInt(ExitCode::kOk)
                                                                  : run.Fail(text.status());
    }
    if (once) {
      run.out() << *text;
      return ToInt(ExitCode::kOk);
    }
    // Home, text, clear the rest: no flicker.
    if (text.ok()) {
      run.out() << "\x1b[H\x1b[2J" << *text << std::flush;
    } else {
      run.out() << "\x1b[H\x1b[2K" << run.out_style().Yellow(std::string(text.status().message()))
                << std::flush;
    }
    if (run.world().interrupt->WaitFor(run.flags().GetDuration("interval"))) {
      run.out() << "\n";
      return ToInt(ExitCode::kOk);
    }
  }
}

}  // namespace

Command TopCommand() {
  Command command;
  command.name = "top";
  command.summary = "Live view of the cluster, its jobs and their ranks";
  command.description =
      "On a terminal it refreshes until Ctrl-C; otherwise it prints one snapshot.";
  command.flags = {{.name = "interval",
                    .kind = FlagKind::kDuration,
                    .value_name = "DURATION",
                    .help = "Between refreshes",
                    .default_value = "2s"},
                   {.name = "once", .help = "One snapshot"},
                   {.name = "limit",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "At most this many jobs",
                    .default_value = "20",
                    .min_value = 1,
                    .max_value = FlagSpec::kMaxInt}};
  command.examples = {{"fsdpctl top", "watch"}, {"fsdpctl top --once", "once"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

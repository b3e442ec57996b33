#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

std::string Prefix(const v1::LogEntry& entry, bool timestamps) {
  std::string prefix = absl::StrCat("[", entry.attempt(), ".", entry.rank(), "] ");
  if (timestamps) prefix = absl::StrCat(TimeText(entry.time()), " ", prefix);
  return prefix;
}

void Print(CommandRun& run, const v1::LogEntry& entry) {
  if (run.flags().GetString("output") == "jsonl") {
    run.out() << ToJsonLine(entry);
    return;
  }
  const Style style = run.out_style();
  std::string prefix =
      run.flags().GetBool("no-prefix") ? "" : Prefix(entry, run.flags().GetBool("timestamps"));
  prefix = entry.stream() == v1::LOG_STREAM_WORKER ? style.Cyan(prefix) : style.Dim(prefix);
  // Raw only for machines: on a terminal a job's escape sequences could hide or rewrite lines.
  const std::string text = run.world().out_is_terminal ? Printable(entry.text()) : entry.text();
  run.out() << prefix << text << "\n";
}

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const std::string& job = run.flags().positional().front();
  LogFilter filter;
  filter.follow = run.flags().GetBool("follow");
  filter.after_offset = run.flags().GetInt("since-offset");
  filter.rank = run.flags().Has("rank") ? static_cast<int>(run.flags().GetInt("rank")) : -1;
  filter.attempt = static_cast<int>(run.flags().GetInt("attempt"));
  filter.tail = run.flags().GetInt("tail");
  StreamOptions options;
  options.on_reconnect = ReconnectNote(run);
  std::int64_t last_offset = filter.after_offset;
  const absl::Status status =
      (*client)->StreamLogs(job, filter, options, [&](const v1::LogEntry& entry) {
        Print(run, entry);
        if (filter.follow) run.out() << std::flush;
        last_offset = entry.offset();
        return run.out().good();
      });
  if (!status.ok()) {
    const int exit_code = run.Fail(status);
    if (last_offset > 0 && exit_code != ToInt(ExitCode::kNotFound)) {
      run.err() << "the log is incomplete; go on with: fsdpctl logs " << IdOf(job)
                << " --since-offset " << last_offset << "\n";
    }
    return exit_code;
  }
  if (!filter.follow) return ToInt(ExitCode::kOk);
  const auto now = (*client)->GetJob(job);
  if (!now.ok()) return run.Fail(now.status());
  run.err() << "job " << IdOf(now->name()) << ": " << run.err_style().State(now->state()) << "\n";
  return ToInt(ExitCodeForJob(now->state()));
}

}  // namespace

Command LogsCommand() {
  Command command;
  command.name = "logs";
  command.summary = "Print what the trainers of a job write; -f follows";
  command.arguments = "JOB";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.description =
      "Each line starts with [ATTEMPT.RANK]. With -f the stream resumes where it broke after a\n"
      "restart of the coordinator, and the exit code is the job's.";
  command.flags = {{.name = "follow", .short_name = 'f', .help = "Until the job is finished"},
                   {.name = "rank",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Only it",
                    .max_value = FlagSpec::kMaxInt},
                   {.name = "attempt",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Only it; 0 is all",
                    .default_value = "0",
                    .max_value = FlagSpec::kMaxInt},
                   {.name = "tail",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Start with the last N lines; 0 is all",
                    .default_value = "0"},
                   {.name = "since-offset",
                    .kind = FlagKind::kInt,
                    .value_name = "OFFSET",
                    .help = "Only lines after this offset (of -o jsonl)",
                    .default_value = "0"},
                   {.name = "timestamps", .help = "Start each line with its time"},
                   {.name = "no-prefix", .help = "Only the text"},
                   OutputFlag({"text", "jsonl"})};
  command.examples = {
      {"fsdpctl logs -f my-job-1a2b3c4d --rank 0", "follow rank 0"},
      {"fsdpctl logs my-job-1a2b3c4d --attempt 1 --tail 50", "how the first attempt ended"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

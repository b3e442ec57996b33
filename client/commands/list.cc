#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  const auto* type = v1::JobState_descriptor();
  for (int i = 1; i < type->value_count(); ++i) {
    names.push_back(EnumText(*type, type->value(i)->number()));
  }
  return names;
}

int Run(CommandRun& run) {
  v1::ListJobsRequest filter;
  for (const auto& name : run.flags().GetStrings("state")) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    v1::JobState_Parse(absl::StrCat("JOB_STATE_", name), &state);
    filter.add_states(state);
  }
  filter.set_queue(run.flags().GetString("queue"));
  filter.set_show_tasks(run.flags().GetBool("tasks"));
  if (run.flags().Has("array")) {
    filter.set_array(Client::JobName(run.flags().GetString("array")));
  }
  for (const auto& label : run.flags().GetStrings("label")) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return run.UsageError(absl::StrCat("--label=", label, ": must be KEY=VALUE"));
    }
    (*filter.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto limit = run.flags().GetInt("limit");
  const auto jobs = (*client)->ListJobs(
      filter, static_cast<int>(std::min<std::int64_t>(limit, std::numeric_limits<int>::max())));
  if (!jobs.ok()) return run.Fail(jobs.status());
  const int exit_code = PrintJobs(run, *jobs, false);
  if (limit > 0 && static_cast<std::int64_t>(jobs->size()) == limit) {
    run.err() << "only the newest " << limit << " are shown; --limit 0 shows all\n";
  }
  if (jobs->empty() && run.flags().GetString("output") == "table") run.err() << "no jobs\n";
  return exit_code;
}

}  // namespace

Command ListCommand() {
  Command command;
  command.name = "list";
  command.aliases = {"ls"};
  command.summary = "List jobs, newest first";
  command.flags = {{.name = "state",
                    .kind = FlagKind::kChoice,
                    .help = "Only jobs in this state",
                    .choices = StateNames(),
                    .repeated = true},
                   {.name = "queue",
                    .kind = FlagKind::kString,
                    .value_name = "NAME",
                    .help = "Only jobs of this queue",
                    .live = LiveNames::kQueues},
                   {.name = "array",
                    .kind = FlagKind::kString,
                    .value_name = "JOB",
                    .help = "Only the tasks of this array",
                    .live = LiveNames::kJobs},
                   {.name = "tasks", .help = "Tasks of arrays too, not only the arrays"},
                   {.name = "label",
                    .short_name = 'l',
                    .kind = FlagKind::kString,
                    .value_name = "KEY=VALUE",
                    .help = "Only jobs with this label",
                    .repeated = true},
                   {.name = "limit",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "At most this many; 0 is all",
                    .default_value = "100"},
                   ObjectOutputFlag({"table", "wide", "json", "yaml", "name"},
                                    *v1::Job::descriptor(), false, "jobs")};
  command.examples = {{"fsdpctl list --state RUNNING --state QUEUED", "what is going on"},
                      {"fsdpctl list -l team=vision -o wide", "one team's jobs, with reasons"},
                      {"fsdpctl list --array sweep-1a2b3c4d", "an array's tasks"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include "client/commands/common.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/render/encode.h"
#include "client/render/json_path.h"
#include "client/render/progress.h"
#include "client/render/views.h"
#include "proto/support/spec.h"
#include "proto/support/status.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

constexpr std::size_t kMaxSpecBytes = 1 << 20;
constexpr char kJsonPath[] = "jsonpath";

}  // namespace

FlagSpec OutputFlag(std::vector<std::string> formats) {
  FlagSpec flag{.name = "output", .short_name = 'o', .kind = FlagKind::kChoice, .help = "Format"};
  flag.default_value = formats.front();
  flag.choices = std::move(formats);
  return flag;
}

FlagSpec ObjectOutputFlag(std::vector<std::string> formats,
                          const google::protobuf::Descriptor& item, bool single,
                          const std::string& list_key) {
  FlagSpec flag = OutputFlag(std::move(formats));
  flag.text_choice = {kJsonPath, "TEMPLATE"};
  flag.check_text = [&item, single, list_key](const std::string& text) -> absl::Status {
    ASSIGN_OR_RETURN(const JsonPath path, JsonPath::Parse(text));
    // Where both are possible the number of arguments decides, which is not known here.
    if (single && path.Check(item, "").ok()) return absl::OkStatus();
    return path.Check(item, single && list_key.empty() ? "" : list_key);
  };
  return flag;
}

FlagSpec JobOutputFlag(std::vector<std::string> formats) {
  return ObjectOutputFlag(std::move(formats), *v1::Job::descriptor(), true, "");
}

FlagSpec ReasonFlag(const std::string& help) {
  return {.name = "reason", .kind = FlagKind::kString, .value_name = "TEXT", .help = help};
}

std::vector<FlagSpec> SpecFlags() {
  return {
      {.name = "file",
       .short_name = 'f',
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "Job spec (YAML or JSON); - is standard input"},
      {.name = "set",
       .kind = FlagKind::kString,
       .value_name = "FIELD=VALUE",
       .help = "Override a field: train.globalBatch=8, metadata.name=x",
       .repeated = true},
  };
}

absl::StatusOr<std::string> ReadSpecText(const std::string& path, std::istream& in) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  }
  std::istream& source = path == "-" ? in : file;
  std::string text;
  char buffer[16384];
  while (source.read(buffer, sizeof(buffer)) || source.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(source.gcount()));
    if (text.size() > kMaxSpecBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": longer than 1 MiB: not a job spec"));
    }
  }
  // A directory opens and then cannot be read.
  if (source.bad()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text;
}

SpecOutcome LoadSpec(CommandRun& run, bool quiet) {
  SpecOutcome outcome;
  const auto& positional = run.flags().positional();
  if (positional.empty() == !run.flags().Has("file")) {
    outcome.exit_code = static_cast<ExitCode>(
        run.UsageError("give one job spec: a file, or -f FILE (- is standard input)"));
    return outcome;
  }
  const std::string path = positional.empty() ? run.flags().GetString("file") : positional.front();
  const auto text = ReadSpecText(path, *run.world().in);
  if (!text.ok()) {
    outcome.exit_code = static_cast<ExitCode>(run.UsageError(std::string(text.status().message())));
    return outcome;
  }
  if (run.world().interrupt->cancelled()) {
    outcome.exit_code = static_cast<ExitCode>(run.Fail(absl::CancelledError("interrupted")));
    return outcome;
  }
  SpecOptions options;
  options.sets = run.flags().GetStrings("set");
  if (run.flags().Has("name")) {
    options.sets.push_back(absl::StrCat("metadata.name=", run.flags().GetString("name")));
  }
  SpecResult result = LoadJob(*text, options);
  outcome.file = path == "-" ? "<stdin>" : path;
  if (!quiet) run.err() << FormatIssues(result.issues, outcome.file);
  if (!result.ok()) outcome.exit_code = ExitCode::kInvalidSpec;
  outcome.issues = std::move(result.issues);
  outcome.job = std::move(result.job);
  return outcome;
}

bool PrintObjects(CommandRun& run, const std::string& list_key,
                  const std::vector<const google::protobuf::Message*>& messages, bool single,
                  int* exit_code) {
  const std::string format = run.flags().GetString("output");
  *exit_code = ToInt(ExitCode::kOk);
  const bool alone = single && messages.size() == 1;
  if (format == "json") {
    run.out() << (alone ? ToJson(*messages[0]) : ListToJson(list_key, messages));
  } else if (format == "yaml") {
    run.out() << (alone ? ToYaml(*messages[0]) : ListToYaml(list_key, messages));
  } else if (absl::StartsWith(format, absl::StrCat(kJsonPath, "="))) {
    if (messages.empty() && single) return true;
    const auto path = JsonPath::Parse(format.substr(sizeof(kJsonPath)));
    const absl::Status fits =
        !path.ok()         ? path.status()
        : messages.empty() ? absl::OkStatus()
                           : path->Check(*messages[0]->GetDescriptor(), alone ? "" : list_key);
    if (!fits.ok()) {
      *exit_code = run.UsageError(std::string(fits.message()));
      return true;
    }
    run.out() << path->Render(nlohmann::ordered_json::parse(
        alone ? ToJson(*messages[0]) : ListToJson(list_key, messages)));
  } else {
    return false;
  }
  return true;
}

int PrintJobs(CommandRun& run, const std::vector<v1::Job>& jobs, bool single) {
  const std::string format = run.flags().GetString("output");
  std::vector<const google::protobuf::Message*> messages;
  messages.reserve(jobs.size());
  for (const auto& job : jobs) messages.push_back(&job);
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintObjects(run, "jobs", messages, single, &exit_code)) return exit_code;
  if (format == "name") {
    for (const auto& job : jobs) run.out() << IdOf(job.name()) << "\n";
  } else {
    run.out() << JobTable(jobs, format == "wide", run.world().clock->WallNow(), run.out_style());
  }
  return exit_code;
}

int ForEachArgument(CommandRun& run,
                    const std::function<absl::Status(Client&, const std::string&)>& action) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  ExitCode worst = ExitCode::kOk;
  for (const auto& name : run.flags().positional()) {
    const absl::Status status = action(**client, name);
    if (status.ok()) continue;
    worst = Worse(worst, static_cast<ExitCode>(run.Fail(status)));
    // The next one would wait just as long for nothing.
    if (ExitCodeForStatus(status) == ExitCode::kUnreachable) break;
  }
  return ToInt(worst);
}

int ForEachJob(CommandRun& run,
               const std::function<absl::StatusOr<v1::Job>(Client&, const std::string&)>& action,
               const std::function<std::string(const v1::Job&)>& note) {
  return ForEachArgument(run, [&](Client& client, const std::string& name) {
    const absl::StatusOr<v1::Job> job = action(client, name);
    if (!job.ok()) return job.status();
    if (run.flags().GetString("output") == "table") {
      const std::string meanwhile = note ? note(*job) : "";
      run.out() << "job " << IdOf(job->name()) << ": " << run.out_style().State(job->state())
                << (meanwhile.empty() ? "" : ", ") << meanwhile << "\n"
                << std::flush;
    } else {
      PrintJobs(run, {*job}, true);
    }
    return absl::OkStatus();
  });
}

std::string GentleStopNote(const std::string& what, const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_RUNNING:
      return job.spec().spec().checkpoint().dir().empty() ? what
                                                          : absl::StrCat(what, ", saves first");
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_RECOVERING:
      return what;
    default:
      return "";
  }
}

void PrintWarnings(CommandRun& run,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    run.err() << run.err_style().Yellow("warning:") << " " << Printable(warning) << "\n";
  }
}

std::function<void(const absl::Status&)> ReconnectNote(CommandRun& run) {
  return [&run](const absl::Status& status) {
    run.err() << run.err_style().Yellow("connection lost, trying to resume") << " for "
              << DurationText(run.settings().reconnect_window) << " (" << status.message() << ")\n"
              << std::flush;
  };
}

absl::StatusOr<v1::Job> FollowJob(CommandRun& run, Client& client, const std::string& job,
                                  absl::Time deadline) {
  // Progress belongs to people: standard output stays free for -o.
  ProgressLine line(&run.err(), run.world().clock,
                    {.terminal = run.world().err_is_terminal,
                     .columns = run.world().columns,
                     .style = run.err_style()});
  StreamOptions options;
  options.deadline = deadline;
  options.on_reconnect = [&line](const absl::Status&) {
    line.Note("coordinator gone, waiting for it to come back (the job goes on)");
  };
  v1::Job last;
  const absl::Status status = client.WatchJob(job, options, [&](const v1::Job& now) {
    last = now;
    line.Show(now);
    return true;
  });
  line.End();
  if (!status.ok()) return status;
  return last;
}

}  // namespace fsdp

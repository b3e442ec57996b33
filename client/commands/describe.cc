#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/queues.h"
#include "client/render/report.h"
#include "client/render/views.h"
#include "proto/support/status.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

absl::StatusOr<std::vector<v1::StepMetrics>> AllMetrics(Client& client, const std::string& job) {
  std::vector<v1::StepMetrics> metrics;
  const absl::Status status =
      client.StreamMetrics(job, 0, false, {}, [&](const v1::StepMetrics& step) {
        metrics.push_back(step);
        return true;
      });
  if (!status.ok()) return status;
  return metrics;
}

// Rank 0's worker shows the job's figures; the coordinator's address is the fallback.
std::string MetricsAddress(Client& client, const v1::Job& job) {
  const auto workers = client.ListWorkers();
  if (workers.ok() && !job.ranks().empty()) {
    for (const auto& worker : *workers) {
      const bool same = IdOf(worker.name()) == IdOf(job.ranks(0).worker());
      if (same && !worker.metrics_address().empty()) return worker.metrics_address();
    }
  }
  const auto cluster = client.GetCluster();
  return cluster.ok() ? cluster->metrics_address() : "";
}

// What is wrong with --plot before anything is asked for; empty when nothing is.
std::string PlotPathError(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string suffix = file.extension().string();
  if (file.filename().empty() || (!suffix.empty() && !absl::EqualsIgnoreCase(suffix, ".svg"))) {
    return absl::StrCat("--plot=", path,
                        ": the curve is written as SVG; name a file that ends in "
                        ".svg, such as ",
                        file.stem().empty() ? "loss" : file.stem().string(), ".svg");
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::StrCat("--plot=", path, ": there is no folder ", folder.string(),
                        "; make it first, or name another");
  }
  return "";
}

absl::Status WritePlot(const std::string& path, const ReportInput& input) {
  const std::string svg = SvgCurve(LossSeries(input.metrics), LossCurveOptions(input.job));
  if (svg.empty()) {
    return absl::FailedPreconditionError(
        "nothing to plot: the job has fewer than two finished steps");
  }
  errno = 0;
  std::ofstream file(path);
  file << svg;
  file.close();
  if (!file) return ErrnoToStatus(errno == 0 ? EIO : errno, "write");
  return absl::OkStatus();
}

int Report(CommandRun& run, Client& client, const v1::Job& job) {
  ReportInput input;
  input.job = job;
  input.columns = run.world().columns;
  auto metrics = AllMetrics(client, job.name());
  if (!metrics.ok()) return run.Fail(metrics.status());
  input.metrics = *std::move(metrics);
  input.metrics_address = MetricsAddress(client, job);
  if (run.flags().Has("plot")) {
    const std::string path = run.flags().GetString("plot");
    if (const absl::Status status = WritePlot(path, input); !status.ok()) {
      return run.UsageError(absl::StrCat("--plot=", path, ": ", status.message()));
    }
    input.plot_path = path;
  }
  run.out() << ReportText(input, run.out_style());
  return ToInt(ExitCode::kOk);
}

absl::StatusOr<std::vector<v1::JobEvent>> LastEvents(Client& client, const std::string& job,
                                                     std::size_t count) {
  std::deque<v1::JobEvent> events;
  const absl::Status status =
      client.StreamEvents(job, 0, false, {}, [&](const v1::JobEvent& event) {
        events.push_back(event);
        if (events.size() > count) events.pop_front();
        return true;
      });
  if (!status.ok()) return status;
  return std::vector<v1::JobEvent>(events.begin(), events.end());
}

// A coordinator that knows no queues yet has nothing to tell.
JobSurroundings SurroundingsOf(Client& client, const v1::Job& job) {
  JobSurroundings around;
  if (IsFinished(job.state())) return around;
  const auto queue = client.GetQueue(job.spec().spec().queue());
  if (queue.ok()) around.queue = QueueFacts(*queue);
  const auto cluster = client.GetCluster();
  if (cluster.ok()) around.maintenance = MaintenanceFacts(cluster->maintenance());
  return around;
}

int Run(CommandRun& run) {
  if (run.flags().Has("plot")) {
    const std::string error = PlotPathError(run.flags().GetString("plot"));
    if (!error.empty()) return run.UsageError(error);
  }
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const std::string& name = run.flags().positional().front();
  const auto job = (*client)->GetJob(name);
  if (!job.ok()) return run.Fail(job.status());
  if (run.flags().GetBool("report") || run.flags().Has("plot")) return Report(run, **client, *job);
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintObjects(run, "jobs", {&*job}, true, &exit_code)) return exit_code;
  const auto events =
      LastEvents(**client, name, static_cast<std::size_t>(run.flags().GetInt("events")));
  if (!events.ok()) return run.Fail(events.status());
  run.out() << JobDescription(*job, *events, run.world().clock->WallNow(), run.out_style(),
                              SurroundingsOf(**client, *job));
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command DescribeCommand() {
  Command command;
  command.name = "describe";
  command.summary = "All about one job: state, ranks, attempts, root cause, events";
  command.arguments = "JOB";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.flags = {
      {.name = "events",
       .kind = FlagKind::kInt,
       .value_name = "N",
       .help = "Show the last N events",
       .default_value = "10"},
      {.name = "report",
       .help = "The closing page instead: losses, memory, kernel verdicts, curve, next commands"},
      {.name = "plot",
       .kind = FlagKind::kFile,
       .value_name = "FILE.svg",
       .help = "Write the loss curve there (with --report)"},
      JobOutputFlag({"text", "json", "yaml"})};
  command.examples = {
      {"fsdpctl describe my-job-1a2b3c4d -o jsonpath='{.rootCause.message}'",
       "one field of the same record, for a script"},
      {"fsdpctl describe my-job-1a2b3c4d", "why does it wait, what failed, which rank is where"},
      {"fsdpctl describe my-job-1a2b3c4d --report --plot loss.svg", "what came out of it"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

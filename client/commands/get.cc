#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/spec.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  if (run.flags().positional().empty()) {
    return run.UsageError("`get` needs JOB...; `fsdpctl list` lists all jobs");
  }
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  std::vector<v1::Job> jobs;
  ExitCode worst = ExitCode::kOk;
  for (const auto& name : run.flags().positional()) {
    auto job = (*client)->GetJob(name);
    if (job.ok()) {
      jobs.push_back(*std::move(job));
      continue;
    }
    worst = Worse(worst, static_cast<ExitCode>(run.Fail(job.status())));
    if (ExitCodeForStatus(job.status()) == ExitCode::kUnreachable) break;
  }
  if (run.flags().GetBool("spec")) {
    for (const auto& job : jobs) run.out() << JobToYaml(job.spec());
  } else if (!jobs.empty()) {
    const int printed = PrintJobs(run, jobs, run.flags().positional().size() == 1);
    worst = Worse(worst, static_cast<ExitCode>(printed));
  }
  return ToInt(worst);
}

}  // namespace

Command GetCommand() {
  Command command;
  command.name = "get";
  command.summary = "Show jobs as a table row, JSON or YAML";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.max_arguments = -1;
  command.flags = {{.name = "spec", .help = "Only the spec, as it could be submitted again"},
                   ObjectOutputFlag({"table", "wide", "json", "yaml", "name"},
                                    *v1::Job::descriptor(), true, "jobs")};
  command.examples = {{"fsdpctl get my-job-1a2b3c4d -o json", "everything, for a program"},
                      {"fsdpctl get my-job-1a2b3c4d -o jsonpath='{.state} {.progress.step}'",
                       "two fields, for a script"},
                      {"fsdpctl get my-job-1a2b3c4d --spec > again.yaml", "its spec"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

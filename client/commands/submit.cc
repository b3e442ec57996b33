#include <algorithm>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/views.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

void PrintFollowUps(CommandRun& run, const std::string& id) {
  const Style style = run.err_style();
  run.err() << "\n"
            << style.Dim("# follow it") << "\n  fsdpctl wait " << id << "\n  fsdpctl logs -f " << id
            << "\n"
            << style.Dim("# look at it") << "\n  fsdpctl describe " << id << "\n"
            << style.Dim("# stop it") << "\n  fsdpctl cancel " << id << "\n";
}

// What the coordinator alone can know: the spec's warnings stand above, with their places.
void PrintNewWarnings(CommandRun& run, const v1::Job& job, const std::vector<SpecIssue>& issues) {
  google::protobuf::RepeatedPtrField<std::string> fresh;
  for (const std::string& warning : job.warnings()) {
    const bool known = std::any_of(issues.begin(), issues.end(), [&](const SpecIssue& issue) {
      return DescribeIssue(issue) == warning;
    });
    if (!known) *fresh.Add() = warning;
  }
  PrintWarnings(run, fresh);
}

void PrintCreated(CommandRun& run, const v1::CreateJobResponse& created,
                  const std::vector<SpecIssue>& issues) {
  const std::string format = run.flags().GetString("output");
  const v1::Job& job = created.job();
  if (format != "table") {
    PrintJobs(run, {job}, true);
    return;
  }
  run.out() << "job " << IdOf(job.name())
            << (created.existing() ? " existed already: " : " submitted: ")
            << run.out_style().State(job.state());
  if (created.has_plan()) {
    run.out() << ", " << created.plan().world_size() << " ranks, "
              << ShortNumber(static_cast<double>(created.plan().parameters())) << " parameters, "
              << BytesText(created.plan().total_bytes()) << " per rank";
  }
  run.out() << "\n" << std::flush;
  PrintNewWarnings(run, job, issues);
}

void PrintWhatToRead(CommandRun& run, const v1::Job& job) {
  const std::string id = IdOf(job.name());
  const Style style = run.err_style();
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    run.err() << "\n"
              << style.Dim("# what came out") << "\n  fsdpctl describe --report " << id << "\n";
  } else {
    run.err() << "\n"
              << style.Dim("# what happened") << "\n  fsdpctl describe " << id
              << "\n  fsdpctl logs " << id << " --tail 50\n";
  }
}

// A program that waits wants the job as it ended, once.
bool PrintsMessage(const CommandRun& run) {
  const std::string format = run.flags().GetString("output");
  return format == "json" || format == "yaml";
}

// As the coordinator takes it; other bytes could not even be sent.
bool IsRequestId(const std::string& id) {
  return !id.empty() && id.size() <= 36 && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
  });
}

int WaitForIt(CommandRun& run, Client& client, const v1::Job& created) {
  const auto job = FollowJob(run, client, created.name(), absl::InfiniteFuture());
  if (!job.ok()) {
    if (job.status().code() == absl::StatusCode::kCancelled) {
      // Ctrl-C ends a `fsdpctl local -- fsdpctl submit` as a whole.
      const bool cluster_ends = run.world().environment("FSDPCTL_LOCAL_WORKERS").has_value();
      run.err() << "stopped waiting" << (cluster_ends ? "" : "; the job goes on") << "\n";
      if (!cluster_ends) PrintFollowUps(run, IdOf(created.name()));
      return ToInt(ExitCode::kJobNotFinished);
    }
    return run.Fail(job.status());
  }
  if (job->state() == v1::JOB_STATE_FAILED && RootCauseIsCurrent(*job)) {
    run.err() << run.err_style().Red(RootCauseText(job->root_cause())) << "\n";
  }
  if (run.flags().GetString("output") == "table") PrintWhatToRead(run, *job);
  if (PrintsMessage(run)) PrintJobs(run, {*job}, true);
  return ToInt(ExitCodeForJob(job->state()));
}

int PrintDryRun(CommandRun& run, const v1::CreateJobResponse& response,
                const std::vector<SpecIssue>& issues) {
  const std::string format = run.flags().GetString("output");
  if (format == "json") {
    run.out() << ToJson(response);
  } else if (format == "yaml") {
    run.out() << ToYaml(response);
  } else if (format != "name") {
    run.out() << PlanText(response.plan(), {.schedule = false}, run.out_style())
              << "the coordinator would accept this job (nothing was submitted)\n"
              << std::flush;
    PrintNewWarnings(run, response.job(), issues);
  }
  return ToInt(ExitCode::kOk);
}

int Run(CommandRun& run) {
  if (run.flags().Has("request-id") && !IsRequestId(run.flags().GetString("request-id"))) {
    return run.UsageError(absl::StrCat(
        "--request-id=", Printable(run.flags().GetString("request-id")),
        ": give 1 to 36 letters, digits and dashes, or leave it out for one that is made up"));
  }
  SpecOutcome spec = LoadSpec(run);
  if (spec.exit_code != ExitCode::kOk) return ToInt(spec.exit_code);
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  v1::CreateJobRequest request;
  *request.mutable_job() = std::move(spec.job);
  request.set_request_id(run.flags().Has("request-id") ? run.flags().GetString("request-id")
                                                       : Client::NewRequestId());
  request.set_validate_only(run.flags().GetBool("dry-run"));
  const auto created = (*client)->CreateJob(request);
  if (!created.ok()) {
    if (ExitCodeForStatus(created.status()) == ExitCode::kUnreachable) {
      run.err() << "if it was stored after all, `--request-id " << request.request_id()
                << "` finds it instead of submitting it again\n";
    }
    return run.Fail(created.status());
  }
  if (request.validate_only()) return PrintDryRun(run, *created, spec.issues);
  const bool wait = run.flags().GetBool("wait");
  if (!wait || !PrintsMessage(run)) PrintCreated(run, *created, spec.issues);
  if (wait) return WaitForIt(run, **client, created->job());
  if (run.flags().GetString("output") == "table") PrintFollowUps(run, IdOf(created->job().name()));
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command SubmitCommand() {
  Command command;
  command.name = "submit";
  command.summary = "Submit a job, and wait for it with --wait";
  command.arguments = "[FILE]";
  command.argument_kind = ArgumentKind::kFile;
  command.max_arguments = 1;
  command.description =
      "The spec is checked here first, with the coordinator's own rules. The job is stored "
      "durably\n"
      "before the command returns. With --wait the exit code is the job's: 0 succeeded, 100 "
      "failed,\n"
      "103 cancelled; Ctrl-C stops waiting (101), not the job. Progress goes to standard error.";
  command.flags = SpecFlags();
  command.flags.insert(
      command.flags.end(),
      {{.name = "name",
        .kind = FlagKind::kString,
        .value_name = "NAME",
        .help = "Instead of the spec's metadata.name"},
       {.name = "wait", .short_name = 'w', .help = "Follow the job until it is finished"},
       {.name = "dry-run", .help = "The coordinator checks and plans; nothing is stored"},
       {.name = "request-id",
        .kind = FlagKind::kString,
        .value_name = "ID",
        .help = "A repeat with the same id finds the first job instead of making another"},
       OutputFlag({"table", "json", "yaml", "name"})});
  command.examples = {
      {"fsdpctl submit job.yaml --wait", "submit and follow, exit by the job's result"},
      {"fsdpctl submit -f job.yaml --set train.globalBatch=8 --set limits.maxSteps=100",
       "the same job, smaller"},
      {"id=$(fsdpctl submit job.yaml -o name)", "in a script"},
      {"generate-spec | fsdpctl submit -f - --dry-run", "what would the coordinator say"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

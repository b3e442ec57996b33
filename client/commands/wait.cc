#include <algorithm>
#include <functional>
#include <mutex>
#include <ostream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/error.h"
#include "client/render/views.h"
#include "proto/support/job_text.h"
#include "proto/support/suggest.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

struct Goal {
  // Absent (unspecified): any finished state.
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  absl::Time deadline = absl::InfiniteFuture();
};

struct Outcome {
  absl::Status status;
  v1::Job job;
  bool reached = false;
};

absl::StatusOr<v1::JobState> ParseGoal(const std::string& text) {
  std::string name = absl::AsciiStrToUpper(text);
  if (absl::StartsWith(name, "STATE=")) name = name.substr(6);
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  if (v1::JobState_Parse(absl::StrCat("JOB_STATE_", name), &state) &&
      state != v1::JOB_STATE_UNSPECIFIED) {
    return state;
  }
  std::vector<std::string> names;
  const auto* type = v1::JobState_descriptor();
  for (int i = 1; i < type->value_count(); ++i) names.push_back(EnumText(*type, i));
  return absl::InvalidArgumentError(
      absl::StrCat("--for=", text, ": must be state=STATE; STATE is one of ",
                   absl::StrJoin(names, ", "), DidYouMean(name, names)));
}

bool Reached(v1::JobState state, const Goal& goal) {
  return goal.state == v1::JOB_STATE_UNSPECIFIED ? IsFinished(state) : state == goal.state;
}

Outcome WatchUntil(Client& client, const std::string& name, const Goal& goal,
                   const std::function<void(const absl::Status&)>& on_reconnect) {
  Outcome outcome;
  StreamOptions options;
  options.on_reconnect = on_reconnect;
  options.deadline = goal.deadline;
  outcome.status = client.WatchJob(name, options, [&](const v1::Job& job) {
    outcome.job = job;
    outcome.reached = Reached(job.state(), goal);
    return !outcome.reached;
  });
  return outcome;
}

// The job has ended in another state than the one waited for.
ExitCode ReportNeverReached(CommandRun& run, const Goal& goal, const v1::Job& job) {
  run.err() << "job " << IdOf(job.name()) << ": has ended as " << EnumText(job.state())
            << ", so it does not become " << EnumText(goal.state) << " any more\n";
  const ExitCode code = ExitCodeForJob(job.state());
  return code == ExitCode::kOk ? ExitCode::kJobNotFinished : code;
}

ExitCode Report(CommandRun& run, const std::string& name, const Goal& goal,
                const Outcome& outcome) {
  if (!outcome.status.ok()) {
    // Time is over or Ctrl-C while the job is known: not finished, rather than unreachable.
    const bool over = outcome.status.code() == absl::StatusCode::kDeadlineExceeded ||
                      outcome.status.code() == absl::StatusCode::kCancelled;
    if (over && !outcome.job.name().empty()) {
      run.err() << "job " << IdOf(name) << ": still " << EnumText(outcome.job.state()) << " ("
                << outcome.status.message() << ")\n";
      return ExitCode::kJobNotFinished;
    }
    return static_cast<ExitCode>(run.Fail(outcome.status));
  }
  run.out() << "job " << IdOf(outcome.job.name()) << ": "
            << run.out_style().State(outcome.job.state()) << "\n";
  if (outcome.job.state() == v1::JOB_STATE_FAILED && RootCauseIsCurrent(outcome.job)) {
    run.err() << "  " << run.err_style().Red(RootCauseText(outcome.job.root_cause())) << "\n";
  }
  if (goal.state == v1::JOB_STATE_UNSPECIFIED) return ExitCodeForJob(outcome.job.state());
  return outcome.reached ? ExitCode::kOk : ReportNeverReached(run, goal, outcome.job);
}

// Several at once: a state that passes quickly is seen in each of them.
std::vector<Outcome> WatchAll(CommandRun& run, Client& client,
                              const std::vector<std::string>& names, const Goal& goal) {
  std::vector<Outcome> outcomes(names.size());
  // All lose the same coordinator; one speaks.
  std::mutex mutex;
  int lost = 0;
  const auto note = [&](const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (lost++ % static_cast<int>(names.size()) == 0) ReconnectNote(run)(status);
  };
  std::vector<std::thread> threads;
  threads.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = WatchUntil(client, names[i], goal, note); });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

int Run(CommandRun& run) {
  Goal goal;
  if (run.flags().Has("for")) {
    const auto state = ParseGoal(run.flags().GetString("for"));
    if (!state.ok()) return run.UsageError(std::string(state.status().message()));
    goal.state = *state;
  }
  if (run.flags().Has("timeout")) {
    // A timeout of nothing is a question: there is time for its answer.
    goal.deadline = absl::Now() + std::max(run.flags().GetDuration("timeout"), absl::Seconds(1));
  }
  const auto& names = run.flags().positional();
  if (names.size() > 64) return run.UsageError("at most 64 jobs at once");
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  if (names.size() == 1 && goal.state == v1::JOB_STATE_UNSPECIFIED &&
      run.flags().GetBool("progress")) {
    Outcome outcome;
    const auto job = FollowJob(run, **client, names[0], goal.deadline);
    outcome.status = job.status();
    if (job.ok()) {
      outcome.job = *job;
      outcome.reached = true;
    } else if (!absl::IsUnavailable(job.status())) {
      if (const auto now = (*client)->GetJob(names[0]); now.ok()) outcome.job = *now;
    }
    return ToInt(Report(run, names[0], goal, outcome));
  }
  ExitCode worst = ExitCode::kOk;
  const auto outcomes = WatchAll(run, **client, names, goal);
  for (std::size_t i = 0; i < names.size(); ++i) {
    worst = Worse(worst, Report(run, names[i], goal, outcomes[i]));
  }
  return ToInt(worst);
}

}  // namespace

Command WaitCommand() {
  Command command;
  command.name = "wait";
  command.summary = "Wait for jobs; exit by their result";
  command.arguments = "JOB...";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.description =
      "Without --for: until every job is finished. Exit code 0 when all succeeded, 100 when one\n"
      "failed, 103 when one was cancelled, 101 when the time is over. With --for: 0 when all\n"
      "reached the state; a job that ends in another gives 100 or 103 as above, or 101 when it\n"
      "succeeded. A restart of the coordinator does not end the waiting; one that is not back\n"
      "within --reconnect does, with exit code 4.";
  command.flags = {{.name = "for",
                    .kind = FlagKind::kString,
                    .value_name = "state=STATE",
                    .help = "Until this state, or until it cannot come any more"},
                   {.name = "timeout",
                    .kind = FlagKind::kDuration,
                    .value_name = "DURATION",
                    .help = "Wait no longer"},
                   {.name = "progress", .help = "Show a progress line (one job)"}};
  command.examples = {{"fsdpctl wait my-job-1a2b3c4d --timeout 2h", "at most two hours"},
                      {"fsdpctl wait a-1a2b3c4d b-5e6f7g2h", "both"},
                      {"fsdpctl wait my-job-1a2b3c4d --for state=RUNNING", "until it trains"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

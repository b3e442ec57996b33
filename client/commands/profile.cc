#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/commands/profile_fetch.h"
#include "proto/support/profile_options.h"
#include "worker/profile/report/job_profile_io.h"
#include "worker/profile/report/kernel_table.h"
#include "worker/profile/report/profile_compare.h"
#include "worker/profile/report/profile_folder.h"

namespace fsdp {
namespace {

constexpr char kProfileFileName[] = "profile.pb";

// A folder that `profile` wrote, or its profile.pb.
absl::StatusOr<v1::JobProfile> ReadProfileArgument(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  return ReadJobProfile(folder ? absl::StrCat(path, "/", kProfileFileName) : path);
}

int Compare(CommandRun& run) {
  const std::vector<std::string>& paths = run.flags().positional();
  if (paths.size() != 2) {
    return run.UsageError("--compare takes two profiles: fsdpctl profile --compare BEFORE AFTER");
  }
  const auto before = ReadProfileArgument(paths[0]);
  if (!before.ok()) return run.Fail(before.status());
  const auto after = ReadProfileArgument(paths[1]);
  if (!after.ok()) return run.Fail(after.status());
  run.out() << CompareText(*before, *after);
  return ToInt(ExitCode::kOk);
}

// "0,2" as numbers.
absl::StatusOr<std::vector<int>> RanksOf(const std::string& text) {
  std::vector<int> ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int rank = 0;
    if (!absl::SimpleAtoi(part, &rank) || rank < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ranks ", text, ": want ranks with commas between them, such as 0,2"));
    }
    ranks.push_back(rank);
  }
  return ranks;
}

// Before anything is recorded: a folder that can be written, and holds no profile yet.
absl::Status CheckFolder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(folder, "/", kProfileFileName), error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output ", folder, " holds a profile: remove it or name another folder"));
  }
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) != 0) error.assign(errno, std::generic_category());
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--output ", folder, " cannot be written: ", error.message()));
}

int Record(CommandRun& run) {
  const ParsedFlags& flags = run.flags();
  if (flags.positional().size() != 1) return run.UsageError("profile takes one JOB");
  ProfileFetch fetch;
  fetch.job = flags.positional().front();
  if (flags.Has("fetch")) fetch.profile = flags.GetString("fetch");
  const absl::Status writable =
      flags.Has("output") ? CheckFolder(flags.GetString("output")) : absl::OkStatus();
  if (!writable.ok()) return run.UsageError(std::string(writable.message()));
  fetch.options.set_steps(static_cast<int>(flags.GetInt("steps")));
  fetch.options.set_counters(flags.GetBool("counters"));
  if (flags.Has("ranks")) {
    const auto ranks = RanksOf(flags.GetString("ranks"));
    if (!ranks.ok()) return run.UsageError(std::string(ranks.status().message()));
    for (const int rank : *ranks) fetch.options.add_ranks(rank);
  }
  fetch.wait = [&](absl::Duration duration) { return run.world().interrupt->WaitFor(duration); };
  const bool terminal = run.world().err_is_terminal;
  fetch.on_progress = [&](const v1::GetProfileResponse& progress) {
    const std::string text = ProfileProgressText(progress, fetch.options.steps());
    run.err() << (terminal ? "\r\x1b[2K" : "") << text << (terminal ? "" : "\n") << std::flush;
  };
  fetch.on_standstill = [&](const std::string& text) {
    run.err() << (terminal ? "\n" : "") << run.err_style().Yellow("note: ") << text << std::endl;
  };
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto profile = FetchProfile(**client, fetch);
  if (terminal) run.err() << "\n";
  if (!profile.ok()) return run.Fail(profile.status());
  const std::string folder =
      flags.Has("output") ? flags.GetString("output") : "profile-" + profile->profile();
  if (absl::Status status = WriteProfileFolder(*profile, ReportOptions(), folder); !status.ok()) {
    // A full disk is no lack of workers.
    return run.Fail(absl::InternalError(
        absl::StrCat(std::string(status.message()), "; the recordings are kept: fsdpctl profile ",
                     fetch.job, " --fetch ", profile->profile(), " gets them again")));
  }
  run.out() << KernelTableText(*profile, static_cast<int>(flags.GetInt("top")));
  run.out() << "\n"
            << folder << "/ has report.html, trace.perfetto-trace for ui.perfetto.dev and "
            << kProfileFileName << " for --compare\n";
  for (const std::string& missing : profile->missing()) {
    run.err() << run.err_style().Yellow("warning: ") << missing << "\n";
  }
  return ToInt(ExitCode::kOk);
}

int Run(CommandRun& run) { return run.flags().GetBool("compare") ? Compare(run) : Record(run); }

}  // namespace

Command ProfileCommand() {
  Command command;
  command.name = "profile";
  command.summary = "Record steps of a running job: trace, kernels, roofline, report";
  command.arguments = "JOB | --compare BEFORE AFTER";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 2;
  command.description =
      "The job goes on; nothing is restarted and nothing has to be set before. All ranks record "
      "the\n"
      "same steps, and their clocks are compared meanwhile. With --compare it says why one "
      "profile's\n"
      "steps take longer than another's.";
  command.flags = {
      {.name = "steps",
       .kind = FlagKind::kInt,
       .value_name = "N",
       .help = "Steps to record",
       .default_value = "5",
       .min_value = 1,
       .max_value = kMaxProfileSteps},
      {.name = "ranks", .kind = FlagKind::kString, .value_name = "LIST", .help = "Only these: 0,2"},
      {.name = "counters", .help = "Hardware counters too, where the device has them"},
      {.name = "output",
       .kind = FlagKind::kFile,
       .value_name = "DIR",
       .help = "Where to; default profile-ID in this folder"},
      {.name = "fetch",
       .kind = FlagKind::kString,
       .value_name = "ID",
       .help = "One that was recorded before (or is, after Ctrl-C), not another"},
      {.name = "top",
       .kind = FlagKind::kInt,
       .value_name = "N",
       .help = "Kernels shown; 0: all",
       .default_value = "20",
       .min_value = 0,
       .max_value = FlagSpec::kMaxInt},
      {.name = "compare", .help = "Two profiles instead of a job"}};
  command.examples = {
      {"fsdpctl profile my-job-1a2b3c4d", "five steps of all ranks"},
      {"fsdpctl profile my-job-1a2b3c4d --steps 20 --ranks 0 --output before", "rank 0 alone"},
      {"fsdpctl profile --compare before after", "what has become slower"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

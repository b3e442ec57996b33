#include "client/commands/trainer_tool.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands/process.h"
#include "proto/support/text.h"

namespace fsdp {

FlagSpec BinDirFlag() {
  return {.name = "bin-dir",
          .kind = FlagKind::kFile,
          .value_name = "DIR",
          .help = "Where fsdp-trainer is; default beside fsdpctl"};
}

bool IsPath(const std::string& argument) {
  return std::filesystem::is_directory(argument) ||
         (absl::StrContains(argument, '/') && !absl::StartsWith(argument, "jobs/"));
}

absl::StatusOr<std::string> CheckpointFolder(CommandRun& run, const std::string& argument) {
  if (std::filesystem::is_directory(argument)) return argument;
  if (IsPath(argument)) {
    return absl::NotFoundError(absl::StrCat(argument, " is no folder on this machine"));
  }
  const auto client = run.client();
  if (!client.ok()) return client.status();
  const auto job = (*client)->GetJob(argument);
  if (!job.ok()) return job.status();
  const std::string& path = job->checkpoint().path();
  if (path.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", IdOf(job->name()), " has no checkpoint"));
  }
  if (!std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat("the checkpoint ", path, " of job ", IdOf(job->name()),
                                            " is not on this machine: run this where the workers' "
                                            "disk is, or bring it here with fsdpctl checkpoint "
                                            "fetch ",
                                            IdOf(job->name())));
  }
  return path;
}

int RunTrainerTool(CommandRun& run, const std::vector<std::string>& arguments,
                   const std::string& interrupted) {
  const auto& flags = run.flags();
  const std::filesystem::path directory =
      flags.Has("bin-dir") ? std::filesystem::path(flags.GetString("bin-dir"))
                           : std::filesystem::path(run.world().executable).parent_path();
  ChildOptions options;
  options.command = {(directory / "fsdp-trainer").string()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  auto child = Child::Start(options);
  if (!child.ok()) return run.Fail(child.status());
  while (!child->Poll().has_value()) {
    if (run.world().interrupt->WaitFor(absl::Milliseconds(20))) {
      child->Stop(absl::Seconds(5));
      return run.Fail(absl::CancelledError(interrupted));
    }
  }
  return ShellExitCode(*child->Poll());
}

}  // namespace fsdp

#include "client/commands/beside.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands/common.h"
#include "client/commands/process.h"

namespace fsdp {

int RunBeside(CommandRun& run, const std::string& program,
              const std::vector<std::string>& arguments, const std::string& verb) {
  const std::filesystem::path path =
      std::filesystem::path(run.world().executable).parent_path() / program;
  std::vector<std::string> command = {path.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  run.out().flush();
  auto child = Child::Start(
      {.command = command, .log_path = "", .extra_environment = {}, .own_group = false});
  if (absl::IsNotFound(child.status())) {
    run.Fail(absl::FailedPreconditionError(
        absl::StrCat(path.string(), " is missing: `", verb, "` runs what lies beside fsdpctl")));
    return ToInt(ExitCode::kInternal);
  }
  if (!child.ok()) return run.Fail(child.status());
  while (!child->Poll().has_value()) {
    // The terminal's Ctrl-C has reached it too; a signal to us alone is passed on.
    if (run.world().interrupt->WaitFor(absl::Milliseconds(20))) child->Stop(absl::Seconds(5));
  }
  return ShellExitCode(*child->Poll());
}

}  // namespace fsdp

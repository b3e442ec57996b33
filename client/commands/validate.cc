#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/spec.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  const SpecOutcome spec = LoadSpec(run);
  if (spec.exit_code != ExitCode::kOk) return ToInt(spec.exit_code);
  const std::string format = run.flags().GetString("output");
  if (format == "yaml") {
    run.out() << JobToYaml(spec.job);
  } else if (format == "json") {
    run.out() << JobToJson(spec.job);
  } else {
    run.out() << "valid: " << spec.job.metadata().name();
    if (spec.num_warnings > 0) run.out() << " (" << spec.num_warnings << " warnings)";
    run.out() << "\n";
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command ValidateCommand() {
  Command command;
  command.name = "validate";
  command.summary = "Check a job spec; works offline";
  command.arguments = "[FILE]";
  command.argument_kind = ArgumentKind::kFile;
  command.max_arguments = 1;
  command.description =
      "Lists everything that is wrong at once, with line and column, and exits with 3. The "
      "verdict\n"
      "is the coordinator's: both run the same checks. -o yaml prints the spec with its defaults.";
  command.flags = SpecFlags();
  command.flags.push_back(OutputFlag({"text", "yaml", "json"}));
  command.examples = {{"fsdpctl validate job.yaml", "is it right?"},
                      {"fsdpctl validate job.yaml --set resources.devicesPerNode=8 -o yaml",
                       "what would be submitted, defaults filled in"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

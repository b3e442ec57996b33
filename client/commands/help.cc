#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  if (run.flags().positional().empty()) {
    run.out() << GeneralHelp();
    return ToInt(ExitCode::kOk);
  }
  const std::string& verb = run.flags().positional().front();
  const Command* command = FindCommand(verb);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const auto& known : Commands()) names.push_back(known.name);
    return run.UsageError(absl::StrCat("unknown verb ", verb, DidYouMean(verb, names)));
  }
  run.out() << CommandHelp(*command);
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command HelpCommand() {
  Command command;
  command.name = "help";
  command.summary = "Show help, also of a verb";
  command.arguments = "[VERB]";
  command.argument_kind = ArgumentKind::kVerb;
  command.max_arguments = 1;
  command.examples = {{"fsdpctl help submit", "how to submit"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

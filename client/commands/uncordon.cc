#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachArgument(run, [&run](Client& client, const std::string& name) {
    const auto worker = client.UncordonWorker(name);
    if (!worker.ok()) return worker.status();
    run.out() << "worker " << IdOf(worker->name()) << ": " << EnumText(worker->state()) << "\n";
    return absl::OkStatus();
  });
}

}  // namespace

Command UncordonCommand() {
  Command command;
  command.name = "uncordon";
  command.summary = "Take drained workers back into service";
  command.arguments = "WORKER...";
  command.argument_kind = ArgumentKind::kWorker;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.examples = {{"fsdpctl uncordon node7-0", "after maintenance"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

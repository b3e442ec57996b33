#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/text.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  ExitCode worst = ExitCode::kOk;
  for (const auto& name : run.flags().positional()) {
    const auto worker = (*client)->UncordonWorker(name);
    if (worker.ok()) {
      run.out() << "worker " << IdOf(worker->name()) << ": " << EnumText(worker->state()) << "\n";
      continue;
    }
    worst = Worse(worst, static_cast<ExitCode>(run.Fail(worker.status())));
    if (ExitCodeForStatus(worker.status()) == ExitCode::kUnreachable) break;
  }
  return ToInt(worst);
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

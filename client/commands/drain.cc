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
    const auto worker = (*client)->DrainWorker(name, run.flags().GetBool("stop-ranks"),
                                               run.flags().GetString("reason"));
    if (!worker.ok()) {
      worst = Worse(worst, static_cast<ExitCode>(run.Fail(worker.status())));
      if (ExitCodeForStatus(worker.status()) == ExitCode::kUnreachable) break;
      continue;
    }
    run.out() << "worker " << IdOf(worker->name()) << ": cordoned";
    if (!worker->job().empty()) {
      run.out() << ", runs rank " << worker->rank() << " of " << IdOf(worker->job());
      if (!run.flags().GetBool("stop-ranks")) run.out() << " to its end";
    }
    run.out() << "\n";
  }
  return ToInt(worst);
}

}  // namespace

Command DrainCommand() {
  Command command;
  command.name = "drain";
  command.aliases = {"cordon"};
  command.summary = "Place no new ranks on workers";
  command.arguments = "WORKER...";
  command.argument_kind = ArgumentKind::kWorker;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.flags = {{.name = "stop-ranks",
                    .help = "Jobs on it checkpoint and move, instead of running to the end"},
                   ReasonFlag("Shown with the worker")};
  command.examples = {
      {"fsdpctl drain node7-0 --stop-ranks --reason \"new fan\"", "before maintenance"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  return ForEachArgument(run, [&run](Client& client, const std::string& name) {
    const bool stop_ranks = run.flags().GetBool("stop-ranks");
    const auto response = client.DrainWorker(name, stop_ranks, run.flags().GetString("reason"));
    if (!response.ok()) return response.status();
    PrintWarnings(run, response->warnings());
    const v1::Worker& worker = response->worker();
    run.out() << "worker " << IdOf(worker.name()) << ": cordoned";
    if (!worker.job().empty()) {
      run.out() << ", runs rank " << worker.rank() << " of " << IdOf(worker.job());
      if (!stop_ranks) run.out() << " to its end";
    }
    run.out() << "\n";
    return absl::OkStatus();
  });
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
  command.description =
      "Holds until fsdpctl uncordon. What runs there runs on to its end; with --stop-ranks its "
      "job\n"
      "saves, stops and goes on elsewhere, at no cost to its restart budget. A job without\n"
      "checkpoint.dir loses what it has trained then, and a warning says so.";
  command.examples = {
      {"fsdpctl drain node7-0 --stop-ranks --reason \"new fan\"", "before maintenance"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

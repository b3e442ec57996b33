#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/text.h"
#include "client/render/views.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto workers = (*client)->ListWorkers();
  if (!workers.ok()) return run.Fail(workers.status());
  const std::string format = run.flags().GetString("output");
  if (format == "name") {
    for (const auto& worker : *workers) run.out() << IdOf(worker.name()) << "\n";
  } else if (format == "json" || format == "yaml") {
    std::vector<const google::protobuf::Message*> messages;
    for (const auto& worker : *workers) messages.push_back(&worker);
    run.out() << (format == "json" ? ListToJson("workers", messages)
                                   : ListToYaml("workers", messages));
  } else {
    run.out() << WorkerTable(*workers, format == "wide", run.world().clock->WallNow(),
                             run.out_style());
    if (workers->empty()) {
      run.err() << "no workers; start one: fsdp-worker --coordinator " << run.settings().server
                << " --devices cpu:1\n";
    }
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command WorkersCommand() {
  Command command;
  command.name = "workers";
  command.summary = "List workers, their devices and what they run";
  command.flags = {OutputFlag({"table", "wide", "json", "yaml", "name"})};
  command.examples = {{"fsdpctl workers -o wide", "with hosts, metrics addresses and reasons"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

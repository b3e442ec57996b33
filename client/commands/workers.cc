#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/queues.h"
#include "client/render/views.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto workers = (*client)->ListWorkers();
  if (!workers.ok()) return run.Fail(workers.status());
  const std::string format = run.flags().GetString("output");
  std::vector<const google::protobuf::Message*> messages;
  messages.reserve(workers->size());
  for (const auto& worker : *workers) messages.push_back(&worker);
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintObjects(run, "workers", messages, false, &exit_code)) return exit_code;
  if (format == "name") {
    for (const auto& worker : *workers) run.out() << IdOf(worker.name()) << "\n";
  } else {
    run.out() << WorkerTable(*workers, format == "wide", run.world().clock->WallNow(),
                             run.out_style());
    const auto cluster = (*client)->GetCluster();
    const std::string maintenance = cluster.ok() ? MaintenanceFacts(cluster->maintenance()) : "";
    if (!maintenance.empty()) {
      run.err() << run.err_style().Yellow("maintenance:") << " " << maintenance << "\n";
    }
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
  command.flags = {ObjectOutputFlag({"table", "wide", "json", "yaml", "name"},
                                    *v1::Worker::descriptor(), false, "workers")};
  command.examples = {
      {"fsdpctl workers -o wide", "with hosts, metrics addresses and reasons"},
      {"fsdpctl workers -o jsonpath='{.workers[?(@.state==\"READY\")].name}'", "the idle ones"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

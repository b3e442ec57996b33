#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"

namespace fsdp {
namespace {

int Run(CommandRun& run) {
  run.out() << "fsdpctl " << FSDPCTL_VERSION << " (API fsdp.v1)\n";
  if (!run.flags().GetBool("remote")) return ToInt(ExitCode::kOk);
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto cluster = (*client)->GetCluster();
  if (!cluster.ok()) return run.Fail(cluster.status());
  run.out() << "coordinator " << cluster->version() << " at " << run.settings().server
            << ", worker protocol " << cluster->protocol_version() << "\n";
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command VersionCommand() {
  Command command;
  command.name = "version";
  command.summary = "Print the version; --remote also the coordinator's";
  command.flags = {{.name = "remote", .help = "Ask the coordinator for its version"}};
  command.examples = {{"fsdpctl version --remote", "do they fit together?"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

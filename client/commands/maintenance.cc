#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/queues.h"

namespace fsdp {
namespace {

int Print(CommandRun& run, const v1::Maintenance& maintenance) {
  const std::string format = run.flags().GetString("output");
  if (format == "json" || format == "yaml") {
    run.out() << (format == "json" ? ToJson(maintenance) : ToYaml(maintenance));
    return ToInt(ExitCode::kOk);
  }
  const std::string facts = MaintenanceFacts(maintenance);
  run.out() << "maintenance: " << (facts.empty() ? "off" : facts) << "\n";
  return ToInt(ExitCode::kOk);
}

int Run(CommandRun& run) {
  const std::string& action = run.flags().positional().front();
  const bool closed = run.flags().GetBool("closed");
  if (action != "on" && action != "off" && action != "status") {
    return run.UsageError(absl::StrCat("no action ", action, "; use on, off or status"));
  }
  if (action != "on" && (closed || run.flags().Has("reason"))) {
    return run.UsageError("--closed and --reason go with on");
  }
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  if (action == "status") {
    const auto cluster = (*client)->GetCluster();
    return cluster.ok() ? Print(run, cluster->maintenance()) : run.Fail(cluster.status());
  }
  const v1::MaintenanceMode mode = action == "off" ? v1::MAINTENANCE_MODE_OFF
                                   : closed        ? v1::MAINTENANCE_MODE_CLOSED
                                                   : v1::MAINTENANCE_MODE_HOLD;
  const auto maintenance = (*client)->SetMaintenance(mode, run.flags().GetString("reason"));
  return maintenance.ok() ? Print(run, *maintenance) : run.Fail(maintenance.status());
}

}  // namespace

Command MaintenanceCommand() {
  Command command;
  command.name = "maintenance";
  command.summary = "Hold the whole cluster: nothing is placed";
  command.arguments = "on|off|status";
  command.actions = {"on", "off", "status"};
  command.actions = {"on", "off", "status"};
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.flags = {{.name = "closed", .help = "Take no jobs either (on)"},
                   ReasonFlag("Shown with every job that waits (on)"),
                   OutputFlag({"table", "json", "yaml"})};
  command.description =
      "Jobs that run go on; jobs that wait, or come back after a failure, wait for its end. It\n"
      "lasts over restarts of the coordinator. To empty the cluster as well, suspend what runs.";
  command.examples = {
      {"fsdpctl maintenance on --reason \"new switches, back at 14:00\"", "hold what is queued"},
      {"fsdpctl suspend $(fsdpctl list --state RUNNING -o name)", "save and stop what runs"},
      {"fsdpctl maintenance off", "place jobs again"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

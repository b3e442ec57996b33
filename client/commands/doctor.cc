#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/doctor/cluster_checks.h"
#include "client/doctor/probe.h"
#include "client/doctor/tls_checks.h"
#include "client/render/table.h"
#include "proto/support/address_list.h"
#include "proto/support/listen_address.h"
#include "worker/doctor/host_checks.h"
#include "worker/doctor/host_facts.h"

namespace fsdp {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Level;

constexpr absl::Duration kProbeTimeout = absl::Seconds(2);

void Append(Findings* to, Findings more) {
  for (Finding& finding : more) to->push_back(std::move(finding));
}

Findings CheckThisHost(const CommandRun& run) {
  doctor::HostRequest request;
  request.paths = run.flags().GetStrings("path");
  request.network = {run.flags().GetString("bind-address"), run.flags().GetString("interface"),
                     run.flags().GetString("job-network")};
  if (!run.world().executable.empty()) {
    request.cuda_trainer =
        (std::filesystem::path(run.world().executable).parent_path() / "fsdp-trainer-cuda")
            .string();
  }
  return doctor::CheckHost(doctor::ReadHostFacts(request));
}

// The second answer counts: the first one's time is that of opening the connection.
absl::StatusOr<doctor::ClusterAnswer> AskCluster(CommandRun& run, Client& client) {
  absl::StatusOr<doctor::ClusterAnswer> answer = doctor::ClusterAnswer();
  for (int i = 0; i < 2 && answer.ok(); ++i) {
    answer->sent = run.world().clock->WallNow();
    auto cluster = client.GetCluster();
    answer->received = run.world().clock->WallNow();
    if (!cluster.ok()) return cluster.status();
    answer->cluster = *std::move(cluster);
  }
  return answer;
}

bool IsEveryAddress(const std::string& address) {
  return address.starts_with("0.0.0.0:") || address.starts_with("[::]:");
}

// Where every address serves, the one that gRPC is reached at does. Of several coordinators which
// one answered is not known: none is probed.
std::string CoordinatorMetrics(const std::string& server, const std::string& address) {
  if (!IsEveryAddress(address) || SplitAddresses(server).size() > 1) return address;
  return server.substr(0, server.rfind(':')) + address.substr(address.rfind(':'));
}

// Those that another machine's Prometheus could fetch; a worker's loopback is its own.
std::vector<doctor::EndpointProbe> ProbeEndpoints(const std::string& server,
                                                  const v1::GetClusterResponse& cluster,
                                                  const std::vector<v1::Worker>& workers) {
  std::vector<doctor::EndpointProbe> probes;
  std::set<std::string> seen;
  const auto probe = [&](const std::string& subject, const std::string& address) {
    if (address.empty() || IsEveryAddress(address) || !seen.insert(address).second) return;
    if (IsLoopback(address) && !AllLoopback(server)) return;
    probes.push_back({subject, address, doctor::ProbeTcp(address, kProbeTimeout)});
  };
  probe("coordinator", CoordinatorMetrics(server, cluster.metrics_address()));
  for (const v1::Worker& worker : workers) {
    if (worker.state() != v1::WORKER_STATE_LOST && worker.state() != v1::WORKER_STATE_LEFT) {
      probe(worker.name().substr(worker.name().find('/') + 1), worker.metrics_address());
    }
  }
  return probes;
}

Findings CheckCluster(CommandRun& run) {
  const auto client = run.client();
  const absl::StatusOr<doctor::ClusterAnswer> answer =
      client.ok() ? AskCluster(run, **client) : client.status();
  Findings findings = doctor::CheckTls(run.settings(), run.world().clock->WallNow());
  Append(&findings, doctor::CheckCoordinator(run.settings().server, answer, FSDPCTL_VERSION));
  if (!answer.ok()) return findings;
  const auto workers = (*client)->ListWorkers();
  if (!workers.ok()) {
    findings.push_back({Level::kFault, "cluster", "workers", "",
                        std::string(workers.status().message()),
                        "ask for the right to see workers, or look after the coordinator"});
    return findings;
  }
  Append(&findings, doctor::CheckWorkers(*workers, answer->cluster.version()));
  Append(&findings,
         doctor::CheckEndpoints(ProbeEndpoints(run.settings().server, answer->cluster, *workers)));
  return findings;
}

std::int64_t Count(const Findings& findings, Level level) {
  return std::ranges::count_if(findings, [&](const Finding& one) { return one.level == level; });
}

std::string ToJson(const Findings& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"level", doctor::LevelName(finding.level)},
                    {"scope", finding.scope},
                    {"check", finding.check},
                    {"subject", finding.subject},
                    {"measured", finding.measured},
                    {"remedy", finding.remedy}});
  }
  const nlohmann::ordered_json report = {{"faults", Count(findings, Level::kFault)},
                                         {"warnings", Count(findings, Level::kWarning)},
                                         {"findings", std::move(list)}};
  // Words of drivers and file systems may hold bytes that are no UTF-8.
  return report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string Colored(const Style& style, Level level) {
  const std::string name = doctor::LevelName(level);
  switch (level) {
    case Level::kOk:
      return style.Green(name);
    case Level::kWarning:
      return style.Yellow(name);
    case Level::kFault:
      break;
  }
  return style.Red(name);
}

void Print(CommandRun& run, const Findings& findings) {
  Table table({{""}, {"CHECK"}, {"OF"}, {"MEASURED"}});
  for (const Finding& finding : findings) {
    table.AddRow({Colored(run.out_style(), finding.level), finding.check,
                  finding.subject.empty() ? finding.scope : finding.subject, finding.measured});
  }
  run.out() << table.Render();
  const std::int64_t faults = Count(findings, Level::kFault);
  const std::int64_t warnings = Count(findings, Level::kWarning);
  if (faults + warnings > 0) run.out() << "\n";
  for (const Finding& finding : findings) {
    if (finding.level == Level::kOk) continue;
    run.out() << finding.check << (finding.subject.empty() ? "" : " of " + finding.subject) << ": "
              << finding.remedy << "\n";
  }
  run.out() << "\n"
            << faults << (faults == 1 ? " fault, " : " faults, ") << warnings
            << (warnings == 1 ? " warning\n" : " warnings\n");
}

int Run(CommandRun& run) {
  const std::string only = run.flags().GetString("only");
  Findings findings;
  if (only != "cluster") Append(&findings, CheckThisHost(run));
  if (only != "host") Append(&findings, CheckCluster(run));
  if (run.flags().GetString("output") == "json") {
    run.out() << ToJson(findings);
  } else {
    Print(run, findings);
  }
  return ToInt(Count(findings, Level::kFault) > 0 ? ExitCode::kInternal : ExitCode::kOk);
}

}  // namespace

Command DoctorCommand() {
  Command command;
  command.name = "doctor";
  command.summary = "Check this machine and the cluster, with what to do about each finding";
  command.description =
      "Measures this machine (limits, memory, disks, clock, network of ranks, driver, CUDA "
      "libraries, GPUs) and asks the coordinator about the cluster (versions, clocks, workers, "
      "metrics endpoints). Run it on every host, as the user of the daemon there. Exits with 1 "
      "when "
      "there is a fault; warnings do not count.";
  command.flags = {
      OutputFlag({"table", "json"}),
      {.name = "only",
       .kind = FlagKind::kChoice,
       .value_name = "host|cluster",
       .help = "Leave the other part out",
       .choices = {"host", "cluster"}},
      {.name = "path",
       .kind = FlagKind::kFile,
       .value_name = "DIR",
       .help = "A folder of state, checkpoints or data: space, and whether it can be written to",
       .repeated = true},
      {.name = "interface",
       .kind = FlagKind::kString,
       .value_name = "NAME",
       .help = "As fsdp-worker's: the interface of ranks"},
      {.name = "job-network",
       .kind = FlagKind::kString,
       .value_name = "CIDR",
       .help = "As fsdp-worker's: the network of ranks"},
      {.name = "bind-address",
       .kind = FlagKind::kString,
       .value_name = "ADDRESS",
       .help = "As fsdp-worker's: the address of ranks"}};
  command.examples = {{"fsdpctl doctor --path /var/lib/fsdp-worker --job-network 10.1.0.0/16",
                       "on a worker's host"},
                      {"fsdpctl doctor --only cluster -o json", "for a script"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

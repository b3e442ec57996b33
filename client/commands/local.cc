#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/commands/local_cluster.h"
#include "client/commands/process.h"

namespace fsdp {
namespace {

void PrintAddresses(CommandRun& run, const LocalAddresses& addresses, bool has_command) {
  const Style style = run.err_style();
  std::ostream& err = run.err();
  err << style.Green("ready") << "  coordinator " << addresses.server << ", "
      << addresses.workers.description << ", state in " << run.flags().GetString("state-dir")
      << "\n";
  if (!addresses.workers.note.empty()) err << "  note  " << addresses.workers.note << "\n";
  if (!addresses.status_page.empty()) {
    err << "  status page          http://" << addresses.status_page << "/\n";
  }
  if (!addresses.coordinator_metrics.empty()) {
    err << "  coordinator metrics  http://" << addresses.coordinator_metrics << "/metrics\n";
  }
  for (const auto& address : addresses.worker_metrics) {
    err << "  worker metrics       http://" << address << "/metrics\n";
  }
  if (!has_command) {
    if (addresses.server != kDefaultServer) {
      err << "  in another terminal:  export FSDPCTL_SERVER=" << addresses.server << "\n";
    }
    err << "  in another terminal:  fsdpctl submit job.yaml --wait\n"
        << "  Ctrl-C stops everything\n";
  }
  err << std::flush;
}

// Waits for `child` beside the cluster. On an interrupt the terminal has told the child too; one
// that does not care is stopped.
absl::StatusOr<int> RunBeside(CommandRun& run, LocalCluster& cluster, Child& child) {
  Interrupt& interrupt = *run.world().interrupt;
  while (!child.Poll().has_value()) {
    if (const absl::Status status = cluster.Supervise(); !status.ok()) {
      child.Stop(absl::Seconds(5));
      return status;
    }
    if (!interrupt.WaitFor(absl::Milliseconds(50))) continue;
    const absl::Time patience = absl::Now() + absl::Seconds(2);
    while (!child.Poll().has_value() && absl::Now() < patience) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    child.Stop(absl::Seconds(10));
  }
  return ShellExitCode(*child.Poll());
}

// Where an unpacked archive lies is on nobody's PATH, yet COMMAND is mostly fsdpctl itself.
std::string PathWithUs(const CliWorld& world) {
  const std::string ours = std::filesystem::path(world.executable).parent_path().string();
  const std::string path = world.environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  return absl::StrCat("PATH=", ours, ":", path);
}

int RunWithCommand(CommandRun& run, LocalCluster& cluster, const LocalAddresses& addresses) {
  auto child = Child::Start(
      {.command = *run.flags().after_dashes(),
       .log_path = "",
       .extra_environment = {absl::StrCat("FSDPCTL_SERVER=", addresses.server),
                             absl::StrCat("FSDPCTL_LOCAL_DEVICE=", addresses.workers.device),
                             absl::StrCat("FSDPCTL_LOCAL_WORKERS=", addresses.workers.num_workers),
                             PathWithUs(run.world())},
       .own_group = false});
  if (!child.ok()) return run.UsageError(std::string(child.status().message()));
  const auto exit_code = RunBeside(run, cluster, *child);
  // A shell's children outlive it. They go before the cluster: they would watch it end.
  StopInherited(absl::Seconds(5));
  if (run.world().interrupt->cancelled()) {
    run.err() << "stopping; unfinished jobs go on with the next `fsdpctl local --state-dir "
              << run.flags().GetString("state-dir") << "`\n"
              << std::flush;
  }
  if (!exit_code.ok()) return run.Fail(exit_code.status());
  return *exit_code;
}

int Run(CommandRun& run) {
  const bool has_command = run.flags().after_dashes().has_value();
  if (has_command && run.flags().after_dashes()->empty()) {
    return run.UsageError("there is no command after --");
  }
  LocalClusterOptions options;
  options.state_dir = run.flags().GetString("state-dir");
  options.executable_dir = run.flags().Has("bin-dir")
                               ? std::filesystem::path(run.flags().GetString("bin-dir"))
                               : std::filesystem::path(run.world().executable).parent_path();
  options.workers.devices = run.flags().GetString("devices");
  if (run.flags().Has("workers")) {
    options.workers.num_workers = static_cast<int>(run.flags().GetInt("workers"));
  }
  options.workers.share_device = run.flags().GetBool("share-device");
  options.clean = run.flags().GetBool("clean");
  options.ready_timeout = run.flags().GetDuration("ready-timeout");
  options.interrupt = run.world().interrupt;
  const auto cluster = LocalCluster::Create(options);
  if (!cluster.ok()) return run.Fail(cluster.status());
  const auto addresses = (*cluster)->Start();
  if (absl::IsInvalidArgument(addresses.status())) {
    return run.UsageError(std::string(addresses.status().message()));
  }
  if (!addresses.ok()) return run.Fail(addresses.status());
  PrintAddresses(run, *addresses, has_command);
  if (has_command) return RunWithCommand(run, **cluster, *addresses);
  while (!run.world().interrupt->WaitFor(absl::Milliseconds(50))) {
    if (const absl::Status status = (*cluster)->Supervise(); !status.ok()) return run.Fail(status);
  }
  run.err() << "stopping\n" << std::flush;
  (*cluster)->Stop();
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command LocalCommand() {
  Command command;
  command.name = "local";
  command.summary = "Run a coordinator and workers on this machine";
  command.takes_command = true;
  command.description =
      "Starts fsdp-coordinator and fsdp-worker from beside fsdpctl on loopback, restarts what "
      "dies,\n"
      "and stops everything on Ctrl-C, or when COMMAND ends: its exit code is then this one's.\n"
      "COMMAND finds the coordinator in FSDPCTL_SERVER, cpu or cuda and the number of workers in\n"
      "FSDPCTL_LOCAL_DEVICE and FSDPCTL_LOCAL_WORKERS, and this fsdpctl first in PATH. Jobs of\n"
      "earlier runs in the same state directory go on unless --clean is given.";
  command.flags = {{.name = "workers",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Workers (default one for each GPU, 4 without one)",
                    .min_value = 1,
                    .max_value = FlagSpec::kMaxInt},
                   {.name = "devices",
                    .kind = FlagKind::kChoice,
                    .help = "GPUs where there are any and the build can use them, or one of both",
                    .default_value = "auto",
                    .choices = {"auto", "cuda", "cpu"}},
                   {.name = "share-device",
                    .help = "Several workers on one GPU, for tests of correctness: slow"},
                   {.name = "state-dir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Jobs, logs and spools",
                    .default_value = "./.fsdp"},
                   {.name = "clean", .help = "Forget the jobs and logs of earlier runs first"},
                   {.name = "ready-timeout",
                    .kind = FlagKind::kDuration,
                    .value_name = "DURATION",
                    .help = "Longest time until all workers are connected",
                    .default_value = "30s"},
                   {.name = "bin-dir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Where fsdp-coordinator and fsdp-worker are, if not beside fsdpctl"}};
  command.examples = {
      {"fsdpctl local", "a worker on each GPU, or four on the CPU, until Ctrl-C"},
      {"fsdpctl local --workers 2 -- fsdpctl submit job.yaml --wait", "only for this one job"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

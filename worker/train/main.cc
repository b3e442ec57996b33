// fsdp-trainer: runs ranks. Under a daemon (--link-fd=N), alone (run), and as a yardstick (oracle,
// bench, collectives). Exit codes: trainer_errors.h.

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "worker/train/bench.h"
#include "worker/train/checkpoint_tools.h"
#include "worker/train/collectives.h"
#include "worker/train/link_daemon.h"
#include "worker/train/model_tools.h"
#include "worker/train/oracle.h"
#include "worker/train/run_tool.h"
#include "worker/train/signal_dump.h"
#include "worker/train/tool_flags.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_backend.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

constexpr char kUsage[] =
    R"(Usage: fsdp-trainer COMMAND

  run JOB.yaml [--local-ranks N] [--communicator gloo|in_process|nccl] [--set KEY=VALUE]...
      Trains the job on this machine, without a coordinator. "-" reads the job from stdin.
      Example: fsdp-trainer run deploy/examples/tiny.yaml --local-ranks 2 --set limits.maxSteps=10
  profile JOB.yaml --output DIR [--steps N] [--local-ranks N] ...
      Records steps of the job on this machine: trace, kernel table, roofline, report.
  oracle FILE [--local-ranks N] [--communicator gloo|in_process|nccl] [--precision fp32|bf16]
      Replays a recorded training and compares; exits with 0 only within tolerance.
  bench --model NAME|FILE --batch B --seq T --steps N --warmup W [--json] ...
      Times training steps on random tokens.
  collectives --model NAME|FILE --local-ranks N ...
      Times gathers and scatters of the model's units between the ranks.
  logits --model DIR --tokens FILE --output FILE [--precision fp32|bf16]
      What a model says to given tokens.
  export CHECKPOINT --output DIR [--dtype fp32|bf16|fp16] [--verify] ...
      A checkpoint as transformers reads it.
  checkpoint list|inspect|verify|diff|reshard DIR ...
      Looks at checkpoints on this machine, or rewrites one for another number of ranks.
  --link-fd N
      A rank of a worker daemon, which starts it so.
  --version, --help

Every command takes --device cpu|cuda; cuda needs fsdp-trainer-cuda beside this executable.
Exit codes: 0 done, 1 internal, 2 usage, 3 invalid job, 9 daemon gone, 10 data, 11 checkpoint,
12 communication, 13 not finite, 14 out of memory, 20 beyond tolerance or different.
)";

int Code(TrainerExit exit) { return static_cast<int>(exit); }

int Fail(const absl::Status& status) {
  LOG_ERROR("%s", std::string(status.message()));
  return Code(ExitOf(status));
}

int FailUsage(const absl::Status& status) {
  std::fprintf(stderr, "fsdp-trainer: %s\n", std::string(status.message()).c_str());
  return Code(TrainerExit::kUsage);
}

void PrintLine(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Under a daemon. The daemon's death ends this process at once, whatever it does: a rank that
// nobody supervises must not hold its device.
int RunLinked(int fd, const TrainerBackend& backend) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  TrainerRun run;
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(
      fd, backend.name, [](const absl::Status&) { ::_exit(Code(TrainerExit::kLinkLost)); },
      &run.start);
  if (!link.ok()) {
    LOG_ERROR("%s", std::string(link.status().message()));
    return Code(TrainerExit::kLinkLost);
  }
  absl::StatusOr<std::unique_ptr<Device>> device = backend.create_device(run.start);
  if (!device.ok()) return Fail(device.status());
  run.print = PrintLine;
  run.data.cache.program = TokenizeProgram();
  run.data.cache.directory = TokenCacheDirectory(run.start.cache_dir());
  run.measure_ceilings = backend.measure_ceilings;
  run.add_unique_ids = backend.add_unique_ids;
  run.marker = backend.marker;
  run.counters = backend.counters;
  run.on_recorder = DumpOnSignal;
  run.memory_in_use_bytes = backend.memory_in_use_bytes;
  run.connect = [&](const v1::CommitEpoch& commit) {
    return backend.connect(run.start, commit, **link, **device);
  };
  // Why it failed is in the log and at the daemon by then.
  return Code(ExitOf(RunRank(run, **link, **device).status()));
}

// Replaces this process by the executable of the other backend.
int ExecCuda(char** argv) {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (size <= 0) return Fail(ErrnoToStatus(errno, "readlink(/proc/self/exe)"));
  std::string path(self, static_cast<std::size_t>(size));
  path = absl::StrCat(path.substr(0, path.rfind('/')), "/fsdp-trainer-cuda");
  ::execv(path.c_str(), argv);
  const bool missing = errno == ENOENT;
  return FailUsage(absl::NotFoundError(absl::StrCat(
      "--device cuda: ", path,
      missing ? " does not exist: this build has no CUDA backend (configure with a CUDA toolkit)"
              : absl::StrCat(" cannot be run: ", std::strerror(errno)))));
}

// What --device says, when it is not this executable's own.
absl::StatusOr<bool> WantsOtherBackend(const std::vector<std::string>& arguments,
                                       const std::string& own) {
  std::string device = own;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--device" && i + 1 < arguments.size()) device = arguments[i + 1];
    if (arguments[i].rfind("--device=", 0) == 0) device = arguments[i].substr(9);
  }
  if (device != "cpu" && device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device is \"", device, "\"; give cpu or cuda"));
  }
  return device != own;
}

bool WantsHelp(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == "--help" || argument == "-h" ||
           (argument == "help" && &argument == &arguments.front());
  });
}

int Main(int argc, char** argv) {
  const TrainerBackend backend = MakeTrainerBackend();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (WantsHelp(arguments)) {
    std::fputs(command == "oracle"        ? kOracleUsage
               : command == "bench"       ? kBenchUsage
               : command == "collectives" ? kCollectivesUsage
               : command == "logits"      ? kLogitsUsage
               : command == "export"      ? kExportUsage
               : command == "checkpoint"  ? kCheckpointUsage
               : command == "run"         ? kRunUsage
               : command == "profile"     ? kProfileUsage
                                          : kUsage,
               stdout);
    return 0;
  }
  const absl::StatusOr<bool> other = WantsOtherBackend(arguments, backend.name);
  if (!other.ok()) return FailUsage(other.status());
  if (*other && backend.name == "cpu") return ExecCuda(argv);
  if (*other) {
    return FailUsage(absl::InvalidArgumentError("this is fsdp-trainer-cuda: run fsdp-trainer"));
  }
  if (command == "run") return RunMain(std::span(arguments), backend);
  if (command == "profile") return ProfileMain(std::span(arguments), backend);
  if (command == "oracle") return OracleMain(std::span(arguments).subspan(1), backend.local);
  if (command == "bench") return BenchMain(std::span(arguments).subspan(1), backend.local);
  if (command == "collectives") {
    return CollectivesMain(std::span(arguments).subspan(1), backend.local);
  }
  if (command == "logits") return LogitsMain(std::span(arguments).subspan(1), backend.local);
  if (command == "export") return ExportMain(std::span(arguments).subspan(1), backend.local);
  if (command == "checkpoint") return CheckpointMain(std::span(arguments).subspan(1));
  const absl::StatusOr<ToolFlags> flags =
      ToolFlags::Parse(arguments, {"device", "link-fd"}, {"version"});
  if (!flags.ok()) return FailUsage(flags.status());
  if (flags->Has("version")) {
    PrintLine(absl::StrCat("fsdp-trainer ", FSDP_VERSION, " (", backend.name, ")"));
    return 0;
  }
  if (flags->Has("link-fd")) {
    const absl::StatusOr<std::int64_t> fd = flags->Integer("link-fd", -1, 0, INT_MAX);
    if (!fd.ok()) return FailUsage(fd.status());
    return RunLinked(static_cast<int>(*fd), backend);
  }
  if (!command.empty()) std::fprintf(stderr, "fsdp-trainer: no command %s\n\n", command.c_str());
  std::fputs(kUsage, stderr);
  return Code(TrainerExit::kUsage);
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  // A write to a dead peer or daemon is an error, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  fsdp::BlockDumpSignal();
  return fsdp::Main(argc, argv);
}

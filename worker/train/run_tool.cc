#include "worker/train/run_tool.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/profile_options.h"
#include "proto/support/spec.h"
#include "proto/support/status.h"
#include "worker/profile/report/kernel_table.h"
#include "worker/profile/report/profile_folder.h"
#include "worker/train/cleaned_run.h"
#include "worker/train/local_launch.h"
#include "worker/train/tool_flags.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {

const char kRunUsage[] =
    R"(Usage: fsdp-trainer run JOB.yaml [flags]

Trains the job on this machine, without a coordinator, and prints every step. "-" reads the job from
standard input. Checkpoints go to the job's checkpoint.dir; checkpoint.resumeFrom goes on from one.

  --local-ranks N                       ranks, processes on this machine (1)
  --communicator gloo|in_process|nccl   between them (gloo; nccl on GPUs; in_process: threads)
  --device cpu|cuda                     cuda needs fsdp-trainer-cuda beside this executable
  --set KEY=VALUE                       changes one field, as fsdpctl submit --set; may be repeated

Examples:
  fsdp-trainer run deploy/examples/tiny.yaml
  fsdp-trainer run deploy/examples/tiny.yaml --local-ranks 2 --set limits.maxSteps=10

Exit codes: as fsdp-trainer --help says.
)";

const char kProfileUsage[] =
    R"(Usage: fsdp-trainer profile JOB.yaml --output DIR [flags]

Trains the first steps of the job on this machine, without a coordinator, records some of them and
writes report.html, trace.perfetto-trace (for ui.perfetto.dev), trace.json.gz, kernels.txt,
roofline.svg and profile.pb (for fsdpctl profile --compare). Nothing is saved or validated.

  --output DIR       where to; made when it is not there
  --steps N          steps to record (5)
  --warmup N         steps before them (3)
  --counters         hardware counters of a GPU beside the launches; the steps recorded are those
                     after the driver has opened a window for them, up to a second later
  --top N            kernels in the table; 0: all (20)
  --local-ranks, --communicator, --device, --set: as fsdp-trainer run

Example:
  fsdp-trainer profile deploy/examples/tiny.yaml --local-ranks 2 --output profile

Exit codes: as fsdp-trainer --help says.
)";

namespace {

constexpr std::int64_t kManySteps = 1'000'000'000;

int Code(TrainerExit exit) { return static_cast<int>(exit); }

int Fail(const absl::Status& status) {
  LOG_ERROR("%s", std::string(status.message()));
  return Code(ExitOf(status));
}

int FailUsage(const std::string& command, const absl::Status& status) {
  std::fprintf(stderr, "fsdp-trainer %s: %s\n", command.c_str(),
               std::string(status.message()).c_str());
  return Code(TrainerExit::kUsage);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return ErrnoToStatus(errno, absl::StrCat("read(", path, ")"));
  return text;
}

// What both commands take. What is wrong with it has been printed when there is an exit code.
struct Parsed {
  std::optional<int> exit_code;
  LocalRunOptions options;
};

Parsed ParseRun(const std::string& command, const ToolFlags& flags, const TrainerBackend& backend) {
  Parsed parsed;
  absl::Status usage;
  if (flags.positional().size() != 2) {
    usage = absl::InvalidArgumentError(absl::StrCat(command, " takes one JOB.yaml"));
  }
  const auto ranks = flags.Integer("local-ranks", 1, 1, 256);
  const auto communicator =
      ParseCommunicatorKind(flags.Text("communicator", DefaultCommunicator(backend.local)));
  usage.Update(ranks.status());
  usage.Update(communicator.status());
  if (usage.ok()) {
    usage = CheckCommunicator(*communicator, static_cast<int>(*ranks), backend.local);
  }
  absl::StatusOr<std::string> text;
  if (usage.ok()) {
    text = ReadFile(flags.positional()[1]);
    usage = text.status();
  }
  if (!usage.ok()) {
    parsed.exit_code = FailUsage(command, usage);
    return parsed;
  }
  SpecOptions spec_options;
  spec_options.sets = flags.Texts("set");
  SpecResult spec = LoadJob(*text, spec_options);
  if (!spec.issues.empty()) {
    std::fputs(FormatIssues(spec.issues, flags.positional()[1]).c_str(), stderr);
  }
  if (!spec.ok()) parsed.exit_code = Code(TrainerExit::kBadSpec);
  parsed.options.job = std::move(spec.job);
  parsed.options.local_ranks = static_cast<int>(*ranks);
  parsed.options.communicator = *communicator;
  return parsed;
}

// The ranks' recordings in one; they are of one host, so of one clock.
absl::StatusOr<v1::JobProfile> MergeLocalProfile(const LocalRunOptions& options) {
  v1::JobProfile profile;
  profile.set_profile("local");
  for (int rank = 0; rank < options.local_ranks; ++rank) {
    const std::string path = RankProfilePath(options.profile_folder, rank);
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    if (!profile.add_ranks()->ParseFromString(bytes)) {
      return absl::DataLossError(absl::StrCat(path, " is no recording"));
    }
    profile.add_clocks()->set_rank(rank);
  }
  profile.set_job(profile.ranks(0).job());
  return profile;
}

// Only as far as the recording goes, and with nothing that it should not show.
void CutShort(std::int64_t steps, v1::TrainingJob* job) {
  v1::JobSpec& spec = *job->mutable_spec();
  spec.mutable_limits()->clear_max_tokens();
  spec.mutable_limits()->clear_max_passes();
  spec.mutable_limits()->set_max_steps(steps);
  spec.mutable_train()->clear_evaluate_every_steps();
  spec.mutable_data()->clear_validation_fraction();
  spec.mutable_checkpoint()->clear_dir();
}

std::string RanksFolder(const std::string& folder) { return absl::StrCat(folder, "/ranks"); }

absl::Status Profile(LocalRunOptions options, const TrainerBackend& backend,
                     const std::string& folder, int top) {
  std::error_code error;
  options.profile_folder = RanksFolder(folder);
  std::filesystem::create_directories(options.profile_folder, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", options.profile_folder, ")"));
  }
  RETURN_IF_ERROR(RunLocalJob(options, backend).status());
  ASSIGN_OR_RETURN(const v1::JobProfile profile, MergeLocalProfile(options));
  RETURN_IF_ERROR(WriteProfileFolder(profile, ReportOptions(), folder));
  std::printf("%s\n%s/ has report.html and trace.perfetto-trace for ui.perfetto.dev\n",
              KernelTableText(profile, top).c_str(), folder.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunMain(std::span<const std::string> arguments, const TrainerBackend& backend) {
  const absl::StatusOr<ToolFlags> flags =
      ToolFlags::Parse(arguments, {"local-ranks", "communicator", "set", "device"}, {});
  if (!flags.ok()) return FailUsage("run", flags.status());
  const Parsed parsed = ParseRun("run", *flags, backend);
  if (parsed.exit_code) return *parsed.exit_code;
  const absl::StatusOr<v1::TrainerDone> done = RunLocalJob(parsed.options, backend);
  if (!done.ok()) return Fail(done.status());
  std::printf("%s\n", DescribeResult(done->result()).c_str());
  return Code(TrainerExit::kDone);
}

int ProfileMain(std::span<const std::string> arguments, const TrainerBackend& backend) {
  const absl::StatusOr<ToolFlags> flags = ToolFlags::Parse(
      {arguments.begin(), arguments.end()},
      {"local-ranks", "communicator", "set", "device", "output", "steps", "warmup", "top"},
      {"counters"});
  if (!flags.ok()) return FailUsage("profile", flags.status());
  const auto steps = flags->Integer("steps", 5, 1, kMaxProfileSteps);
  const auto warmup = flags->Integer("warmup", 3, 1, 1000000);
  const auto top = flags->Integer("top", 20, 0, 1000000);
  absl::Status usage = steps.status();
  usage.Update(warmup.status());
  usage.Update(top.status());
  if (usage.ok() && !flags->Has("output")) {
    usage = absl::InvalidArgumentError("give --output DIR");
  }
  if (!usage.ok()) return FailUsage("profile", usage);
  Parsed parsed = ParseRun("profile", *flags, backend);
  if (parsed.exit_code) return *parsed.exit_code;
  v1::ProfileOptions options;
  options.set_steps(static_cast<int>(*steps));
  options.set_counters(flags->Has("counters"));
  parsed.options.profile = options;
  parsed.options.profile_after_steps = *warmup;
  // The end of the recording ends the training.
  CutShort(options.counters() ? kManySteps : *warmup + *steps, &parsed.options.job);
  const std::string folder = flags->Text("output", "");
  std::error_code ignored;
  const bool is_ours = !std::filesystem::exists(folder, ignored);
  return RunCleaned(
      [&] {
        // Where ranks meet is there too, and goes with it.
        const std::string ranks = RanksFolder(folder);
        std::filesystem::create_directories(ranks, ignored);
        setenv("TMPDIR", std::filesystem::absolute(ranks, ignored).c_str(), /*overwrite=*/1);
        const absl::Status status =
            Profile(parsed.options, backend, folder, static_cast<int>(*top));
        return status.ok() ? Code(TrainerExit::kDone) : Fail(status);
      },
      [&] {
        std::filesystem::remove_all(RanksFolder(folder), ignored);
        // Without a report it is empty.
        if (is_ours && std::filesystem::is_empty(folder, ignored)) {
          std::filesystem::remove(folder, ignored);
        }
      });
}

}  // namespace fsdp

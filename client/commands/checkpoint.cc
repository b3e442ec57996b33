#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/checkpoint_fetch.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/commands/trainer_tool.h"
#include "client/render/encode.h"
#include "client/render/table.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

constexpr char kInterrupted[] = "interrupted";

// What the coordinator knows: the same from every machine.
int ListJob(CommandRun& run, const std::string& job) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto checkpoints = (*client)->ListCheckpoints(job);
  if (!checkpoints.ok()) return run.Fail(checkpoints.status());
  if (run.flags().GetString("output") == "json") {
    v1::ListCheckpointsResponse list;
    list.mutable_checkpoints()->Assign(checkpoints->begin(), checkpoints->end());
    run.out() << ToJson(list) << "\n";
    return ToInt(ExitCode::kOk);
  }
  Table table({{"STEP", true},
               {"EPOCH", true},
               {"RANKS", true},
               {"SIZE", true},
               {"VALIDATION", true},
               {"PATH"}});
  for (const v1::CheckpointInfo& one : *checkpoints) {
    table.AddRow({absl::StrCat(one.step()), absl::StrCat(one.epoch()),
                  absl::StrCat(one.world_size()), BytesText(one.size_bytes()),
                  one.has_validation_loss() ? LossText(one.validation_loss()) : "-", one.path()});
  }
  run.out() << table.Render("");
  return ToInt(ExitCode::kOk);
}

int RunTool(CommandRun& run, const std::string& action, const std::vector<std::string>& names) {
  std::vector<std::string> arguments = {"checkpoint", action};
  for (const std::string& name : names) {
    const auto folder = CheckpointFolder(run, name);
    if (!folder.ok()) return run.Fail(folder.status());
    arguments.push_back(*folder);
  }
  if (run.flags().GetString("output") == "json") arguments.emplace_back("--json");
  if (run.flags().Has("world-size")) {
    arguments.push_back(absl::StrCat("--world-size=", run.flags().GetInt("world-size")));
  }
  if (run.flags().Has("to")) {
    arguments.push_back(absl::StrCat("--output=", run.flags().GetString("to")));
  }
  return RunTrainerTool(run, arguments, kInterrupted);
}

int RunFetch(CommandRun& run, const std::string& job) {
  if (!run.flags().Has("to")) return run.UsageError("give --to DIR");
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto checkpoints = (*client)->ListCheckpoints(job);
  if (!checkpoints.ok()) return run.Fail(checkpoints.status());
  const std::int64_t step = run.flags().Has("step") ? run.flags().GetInt("step") : -1;
  // Newest first.
  const auto found = std::find_if(
      checkpoints->begin(), checkpoints->end(),
      [step](const auto& checkpoint) { return step < 0 || checkpoint.step() == step; });
  if (found == checkpoints->end()) {
    return run.Fail(absl::NotFoundError(
        step < 0 ? absl::StrCat("job ", IdOf(job), " has no checkpoint")
                 : absl::StrCat("job ", IdOf(job), " has no checkpoint of step ", step)));
  }
  FetchRequest request{Client::JobName(job), *found, run.flags().GetString("to")};
  const bool shows = run.world().err_is_terminal;
  const auto fetched =
      FetchCheckpoint(**client, request, [&](std::int64_t done, std::int64_t total) {
        if (shows) run.err() << "\r" << BytesText(done) << " of " << BytesText(total) << "  ";
      });
  if (shows) run.err() << "\n";
  if (!fetched.ok()) return run.Fail(fetched.status());
  run.out() << *fetched << "\n";
  return ToInt(ExitCode::kOk);
}

int Run(CommandRun& run) {
  const std::vector<std::string>& given = run.flags().positional();
  const std::string& action = given.front();
  const std::vector<std::string> names(given.begin() + 1, given.end());
  const bool is_known = action == "list" || action == "inspect" || action == "verify" ||
                        action == "diff" || action == "reshard" || action == "fetch";
  if (!is_known) {
    return run.UsageError(
        absl::StrCat("no action ", action, "; use list, inspect, verify, diff, reshard or fetch"));
  }
  const std::size_t wanted = action == "diff" ? 2 : 1;
  if (names.size() != wanted) {
    return run.UsageError(wanted == 2 ? "diff takes two of JOB|DIR"
                                      : absl::StrCat(action, " takes one JOB|DIR"));
  }
  if (action == "fetch") return RunFetch(run, names[0]);
  if (action == "list" && !IsPath(names[0])) return ListJob(run, names[0]);
  const bool complete = run.flags().Has("world-size") && run.flags().Has("to");
  if (action == "reshard" && !complete) {
    return run.UsageError("reshard needs --world-size N and --to DIR");
  }
  return RunTool(run, action, names);
}

}  // namespace

Command CheckpointCommand() {
  Command command;
  command.name = "checkpoint";
  command.summary = "Look at, compare, rewrite and copy checkpoints";
  command.arguments = "list|inspect|verify|diff|reshard|fetch JOB|DIR...";
  command.argument_kind = ArgumentKind::kJob;
  command.actions = {"list", "inspect", "verify", "diff", "reshard", "fetch"};
  command.min_arguments = 2;
  command.max_arguments = 3;
  command.description =
      "  list JOB|DIR      a job's checkpoints, or what a folder holds and what is wrong with it\n"
      "  inspect JOB|DIR   the manifest: step, losses, files, tensors\n"
      "  verify JOB|DIR    reads every file and compares size and CRC-32C\n"
      "  diff A B          the tensors whose bits differ, and by how much; exit code 20 when some "
      "do\n"
      "  reshard JOB|DIR   the same checkpoint in the files of --world-size N ranks\n"
      "  fetch JOB         a copy from the workers' disks to this machine; goes on where it was "
      "broken\n"
      "                    off\n"
      "DIR is a checkpoint's folder, or a job's folder of them. All but list and fetch need the "
      "files "
      "on\n"
      "this machine.";
  command.flags = {{.name = "to",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Gets the step's folder (reshard, fetch)"},
                   {.name = "world-size",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Ranks to rewrite for (reshard)",
                    .min_value = 1,
                    .max_value = FlagSpec::kMaxInt},
                   {.name = "step",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Which one (fetch); default the newest"},
                   OutputFlag({"table", "json"}),
                   BinDirFlag()};
  command.examples = {
      {"fsdpctl checkpoint list my-job-1a2b3c4d", "what there is to resume from"},
      {"fsdpctl checkpoint fetch my-job-1a2b3c4d --to ./checkpoints", "the newest, to here"},
      {"fsdpctl checkpoint reshard ./checkpoints --world-size 8 --to ./for-8",
       "in eight ranks' files"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include <filesystem>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/commands/process.h"
#include "client/render/text.h"

namespace fsdp {
namespace {

// The folder that is exported: CHECKPOINT itself, or a job's newest checkpoint.
absl::StatusOr<std::string> SourceOf(CommandRun& run, const std::string& argument) {
  if (std::filesystem::is_directory(argument)) return argument;
  if (absl::StrContains(argument, '/') && !absl::StartsWith(argument, "jobs/")) {
    return absl::NotFoundError(absl::StrCat(argument, " is no folder on this machine"));
  }
  const auto client = run.client();
  if (!client.ok()) return client.status();
  const auto job = (*client)->GetJob(argument);
  if (!job.ok()) return job.status();
  const std::string& path = job->checkpoint().path();
  if (path.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", IdOf(job->name()), " has no checkpoint"));
  }
  if (!std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat(
        "the checkpoint ", path, " of job ", IdOf(job->name()),
        " is not on this machine: run export where the workers' disk is, or copy the folder here"));
  }
  return path;
}

// The trainer has the engine, which this program does not link.
int RunTrainer(CommandRun& run, const std::string& source) {
  const auto& flags = run.flags();
  const std::filesystem::path directory =
      flags.Has("bin-dir") ? std::filesystem::path(flags.GetString("bin-dir"))
                           : std::filesystem::path(run.world().executable).parent_path();
  ChildOptions options;
  options.command = {(directory / "fsdp-trainer").string(), "export", source};
  for (const char* name :
       {"output", "format", "dtype", "max-shard-size", "tokenizer", "model", "device"}) {
    if (flags.Has(name)) {
      options.command.push_back(absl::StrCat("--", name, "=", flags.GetString(name)));
    }
  }
  if (flags.GetBool("verify")) options.command.emplace_back("--verify");
  auto child = Child::Start(options);
  if (!child.ok()) return run.Fail(child.status());
  while (!child->Poll().has_value()) {
    if (run.world().interrupt->WaitFor(absl::Milliseconds(20))) {
      child->Stop(absl::Seconds(5));
      return run.Fail(absl::CancelledError("interrupted: nothing was exported"));
    }
  }
  return ShellExitCode(*child->Poll());
}

int Run(CommandRun& run) {
  if (!run.flags().Has("output")) return run.UsageError("give --output DIR");
  const auto source = SourceOf(run, run.flags().positional().front());
  if (!source.ok()) return run.Fail(source.status());
  return RunTrainer(run, *source);
}

}  // namespace

Command ExportCommand() {
  Command command;
  command.name = "export";
  command.summary = "Write a checkpoint as Hugging Face transformers reads it";
  command.arguments = "JOB|CHECKPOINT";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.description =
      "Takes a job's newest checkpoint, or the folder of a checkpoint (or of a job's checkpoints) "
      "on\n"
      "this machine, and writes config.json, generation_config.json and safetensors. The folder\n"
      "appears whole or not at all.";
  command.flags = {{.name = "output",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "The folder to write; must not exist"},
                   {.name = "format",
                    .kind = FlagKind::kChoice,
                    .help = "As whose files",
                    .default_value = "hf",
                    .choices = {"hf"}},
                   {.name = "dtype",
                    .kind = FlagKind::kChoice,
                    .help = "Of the weights",
                    .default_value = "fp32",
                    .choices = {"fp32", "bf16", "fp16"}},
                   {.name = "max-shard-size",
                    .kind = FlagKind::kString,
                    .value_name = "SIZE",
                    .help = "Of a file: 5GB, 500MB",
                    .default_value = "5GB"},
                   {.name = "tokenizer",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Copies its tokenizer files, generation settings and token ids"},
                   {.name = "model",
                    .kind = FlagKind::kFile,
                    .value_name = "NAME|FILE",
                    .help = "A preset or a config.json, where the checkpoint has none"},
                   {.name = "verify", .help = "Load what was written and compare logits"},
                   {.name = "device",
                    .kind = FlagKind::kChoice,
                    .help = "Of --verify",
                    .default_value = "cpu",
                    .choices = {"cpu", "cuda"}},
                   {.name = "bin-dir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Where fsdp-trainer is; default beside fsdpctl"}};
  command.examples = {
      {"fsdpctl export my-job-1a2b3c4d --output ./model --dtype bf16 --verify",
       "the newest checkpoint, compared after writing"},
      {"fsdpctl export /checkpoints/my-job-1a2b3c4d --output ./model --tokenizer ./base",
       "without a coordinator, with the base model's tokenizer"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/trainer_tool.h"

namespace fsdp {
namespace {

int RunExport(CommandRun& run, const std::string& source) {
  const auto& flags = run.flags();
  std::vector<std::string> arguments = {"export", source};
  for (const char* name :
       {"output", "format", "dtype", "max-shard-size", "tokenizer", "model", "device"}) {
    if (flags.Has(name)) arguments.push_back(absl::StrCat("--", name, "=", flags.GetString(name)));
  }
  if (flags.GetBool("verify")) arguments.emplace_back("--verify");
  return RunTrainerTool(run, arguments, "interrupted: nothing was exported");
}

int Run(CommandRun& run) {
  if (!run.flags().Has("output")) return run.UsageError("give --output DIR");
  const auto source = CheckpointFolder(run, run.flags().positional().front());
  if (!source.ok()) return run.Fail(source.status());
  return RunExport(run, *source);
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
                   BinDirFlag()};
  command.examples = {
      {"fsdpctl export my-job-1a2b3c4d --output ./model --dtype bf16 --verify",
       "the newest checkpoint, compared after writing"},
      {"fsdpctl export /checkpoints/my-job-1a2b3c4d --output ./model --tokenizer ./base",
       "without a coordinator, with the base model's tokenizer"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

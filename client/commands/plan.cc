#include "worker/plan/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/table.h"
#include "client/render/views.h"
#include "proto/support/spec.h"
#include "proto/support/text.h"
#include "worker/plan/model_config.h"
#include "worker/plan/plan_advice.h"

namespace fsdp {
namespace {

int ListPresets(CommandRun& run) {
  Table table({{"PRESET"},
               {"FAMILY"},
               {"PARAMETERS", true},
               {"DIM", true},
               {"LAYERS", true},
               {"HEADS", true},
               {"VOCABULARY", true}});
  for (const auto& name : PresetNames()) {
    v1::ModelSpec spec;
    spec.set_preset(name);
    const auto model = ResolveModel(spec);
    if (!model.ok()) return run.Fail(model.status());
    table.AddRow({name, NameOf(model->family),
                  ShortNumber(static_cast<double>(NumParameters(*model))), absl::StrCat(model->dim),
                  absl::StrCat(model->num_layers), absl::StrCat(model->num_heads),
                  absl::StrCat(model->vocab_size)});
  }
  run.out() << table.Render();
  return ToInt(ExitCode::kOk);
}

// "80GiB", "1.5 MiB", "1000000 B". A number alone is more often meant in GiB than in bytes.
std::optional<std::int64_t> ParseBytes(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    ++digits;
  }
  double value = 0;
  if (!absl::SimpleAtod(text.substr(0, digits), &value)) return std::nullopt;
  static const std::pair<const char*, double> kUnits[] = {
      {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  const std::size_t unit_start = text.find_first_not_of(' ', digits);
  const std::string unit = unit_start == std::string::npos ? "" : text.substr(unit_start);
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && value * factor < 0x1p62) return static_cast<std::int64_t>(value * factor);
  }
  return std::nullopt;
}

int PrintPlan(CommandRun& run, const v1::Plan& plan) {
  const std::string format = run.flags().GetString("output");
  if (format == "json") {
    run.out() << ToJson(plan);
  } else if (format == "yaml") {
    run.out() << ToYaml(plan);
  } else {
    const PlanView view{.policies = run.flags().GetBool("policies"),
                        .schedule = format == "wide" || run.flags().GetBool("schedule"),
                        .units = format == "wide"};
    run.out() << PlanText(plan, view, run.out_style());
  }
  return ToInt(ExitCode::kOk);
}

constexpr std::int64_t kTokens = 1024;

// What the model can take of kTokens.
std::int64_t SequenceLengthFor(const ModelConfig& model) {
  std::int64_t length = kTokens;
  if (model.max_positions > 0) length = std::min<std::int64_t>(length, model.max_positions);
  if (model.sliding_window > 0) length = std::min<std::int64_t>(length, model.sliding_window);
  return length;
}

// --model instead of a job: that model on GPUs, one sequence of 1024 tokens (or as many as it can
// take) a rank, and --set.
SpecOutcome JobOfModel(CommandRun& run) {
  SpecOutcome outcome;
  if (!run.flags().positional().empty() || run.flags().Has("file")) {
    outcome.exit_code = static_cast<ExitCode>(run.UsageError("give a job spec or --model"));
    return outcome;
  }
  const std::string name = run.flags().GetString("model");
  const std::vector<std::string> presets = PresetNames();
  const bool preset = std::find(presets.begin(), presets.end(), name) != presets.end();
  if (!preset && (name.empty() || access(name.c_str(), R_OK) != 0)) {
    outcome.exit_code =
        static_cast<ExitCode>(run.UsageError(std::string(NoSuchModel(name).message())));
    return outcome;
  }
  v1::ModelSpec spec;
  if (preset) {
    spec.set_preset(name);
  } else {
    spec.set_config_path(std::filesystem::absolute(name).lexically_normal().string());
  }
  const nlohmann::json model = {
      {preset ? "preset" : "configPath", preset ? spec.preset() : spec.config_path()}};
  // What is wrong with a config.json, LoadJob says.
  const auto config = ResolveModel(spec);
  const std::int64_t length = config.ok() ? SequenceLengthFor(*config) : kTokens;
  const std::int64_t ranks =
      run.flags().Has("world-size") ? run.flags().GetInt("world-size") : std::int64_t{1};
  const nlohmann::json job = {{"apiVersion", "fsdp.v1"},
                              {"kind", "TrainingJob"},
                              {"metadata", {{"name", "plan"}}},
                              {"spec",
                               {{"model", model},
                                {"data", {{"source", "synthetic"}, {"sequenceLength", length}}},
                                {"train", {{"globalBatch", ranks}}},
                                {"resources", {{"device", "cuda"}}},
                                {"limits", {{"maxSteps", 1}}}}}};
  SpecOptions options;
  options.sets = run.flags().GetStrings("set");
  SpecResult result = LoadJob(job.dump(), options);
  outcome.file = "--model " + name;
  // Places are of a text that nobody has seen.
  for (SpecIssue& issue : result.issues) {
    issue.line = issue.column = 0;
    if (issue.field == "spec.model.configPath") issue.field.clear();
  }
  run.err() << FormatIssues(result.issues, outcome.file);
  if (!result.ok()) outcome.exit_code = ExitCode::kInvalidSpec;
  outcome.job = std::move(result.job);
  return outcome;
}

int Run(CommandRun& run) {
  if (run.flags().GetBool("list-presets")) return ListPresets(run);
  const SpecOutcome spec = run.flags().Has("model") ? JobOfModel(run) : LoadSpec(run);
  if (spec.exit_code != ExitCode::kOk) return ToInt(spec.exit_code);
  std::int64_t memory_bytes = 0;
  if (run.flags().Has("device-memory")) {
    const auto bytes = ParseBytes(run.flags().GetString("device-memory"));
    if (!bytes.has_value() || *bytes <= 0) {
      return run.UsageError(absl::StrCat("--device-memory=", run.flags().GetString("device-memory"),
                                         ": must be a size with its unit, such as 80GiB"));
    }
    memory_bytes = *bytes;
  }
  const int world_size = run.flags().Has("world-size")
                             ? static_cast<int>(run.flags().GetInt("world-size"))
                             : JobWorldSize(spec.job);
  const auto input = PlanInputFromJob(spec.job, world_size, memory_bytes);
  const auto plan = input.ok() ? BuildPlan(*input) : input.status();
  if (!plan.ok()) {
    run.Fail(plan.status());
    // What does not fit is unschedulable; anything else here is the spec's fault.
    return ToInt(plan.status().code() == absl::StatusCode::kResourceExhausted
                     ? ExitCode::kUnschedulable
                     : ExitCode::kInvalidSpec);
  }
  v1::Plan told = ToProto(*plan);
  *told.mutable_memory_advice() = AdviseOnMemory(*input);
  return PrintPlan(run, told);
}

}  // namespace

Command PlanCommand() {
  Command command;
  command.name = "plan";
  command.summary = "Memory per rank and schedule of a job; needs no cluster";
  command.arguments = "[FILE]";
  command.argument_kind = ArgumentKind::kFile;
  command.max_arguments = 1;
  command.description =
      "Everything a rank will hold, to the byte, before anything runs, and how many ranks it "
      "would\n"
      "fit. With --device-memory a job that does not fit is refused with exit code 6: the largest\n"
      "parts, and the ranks and micro-batches that do fit; --policies tells of one that fits what\n"
      "each recomputation policy would take.";
  command.flags = SpecFlags();
  command.flags.insert(
      command.flags.end(),
      {{.name = "model",
        .kind = FlagKind::kFile,
        .value_name = "NAME|PATH",
        .help = "A preset, a config.json or its folder, instead of a job: 1024 tokens a GPU, or "
                "what it can take, and --set"},
       {.name = "world-size",
        .kind = FlagKind::kInt,
        .value_name = "N",
        .help = "Ranks, instead of the spec's resources",
        .min_value = 1,
        .max_value = kMaxWorldSize},
       {.name = "device-memory",
        .kind = FlagKind::kString,
        .value_name = "SIZE",
        .help = "Memory of one device (80GiB): what does not fit is refused. Without it a CUDA job "
                "is told how it would fit an NVIDIA H200"},
       {.name = "policies", .help = "Also what each recomputation policy would take"},
       {.name = "schedule", .help = "Also the operations of one micro-batch"},
       {.name = "list-presets", .help = "The built-in model shapes"},
       OutputFlag({"table", "wide", "json", "yaml"})});
  command.examples = {
      {"fsdpctl plan job.yaml", "memory table of a rank"},
      {"fsdpctl plan job.yaml --world-size 8 --policies --device-memory 80GiB",
       "would it fit on eight of those, and how?"},
      {"fsdpctl plan job.yaml -o wide", "with units and schedule"},
      {"fsdpctl plan --model ./Qwen3-8B --world-size 8 --set data.sequenceLength=4096",
       "what training a downloaded model takes"},
      {"fsdpctl plan --list-presets", "shapes for spec.model.preset"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

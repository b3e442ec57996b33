#include <cmath>
#include <functional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/text.h"

namespace fsdp {
namespace {

// One column of the CSV form: base units, names as in the JSON form but with units.
struct Field {
  const char* name;
  std::function<std::string(const v1::StepMetrics&)> value;
};

std::string Number(double value) { return absl::StrFormat("%.9g", UnsignedNan(value)); }

const std::vector<Field>& Fields() {
  using Step = const v1::StepMetrics&;
  static const auto& fields = *new std::vector<Field>{
      {"step", [](Step s) { return absl::StrCat(s.step()); }},
      {"time",
       [](Step s) {
         return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", ToTime(s.time()), absl::UTCTimeZone());
       }},
      {"attempt", [](Step s) { return absl::StrCat(s.attempt()); }},
      {"epoch", [](Step s) { return absl::StrCat(s.epoch()); }},
      {"loss", [](Step s) { return Number(s.loss()); }},
      {"validation_loss",
       [](Step s) { return s.has_validation_loss() ? Number(s.validation_loss()) : ""; }},
      {"grad_norm", [](Step s) { return Number(s.grad_norm()); }},
      {"lr", [](Step s) { return Number(s.lr()); }},
      {"tokens", [](Step s) { return absl::StrCat(s.tokens()); }},
      {"step_seconds", [](Step s) { return Number(s.step_seconds()); }},
      {"tokens_per_second", [](Step s) { return Number(s.tokens_per_second()); }},
      {"flops", [](Step s) { return Number(s.flops()); }},
      {"mfu", [](Step s) { return s.mfu() > 0 ? Number(s.mfu()) : ""; }},
      {"memory_peak_bytes", [](Step s) { return absl::StrCat(s.memory_peak_bytes()); }},
      {"data_seconds", [](Step s) { return Number(s.phases().data_seconds()); }},
      {"compute_seconds", [](Step s) { return Number(s.phases().compute_seconds()); }},
      {"exposed_gather_seconds",
       [](Step s) { return Number(s.phases().exposed_gather_seconds()); }},
      {"exposed_scatter_seconds",
       [](Step s) { return Number(s.phases().exposed_scatter_seconds()); }},
      {"optimizer_seconds", [](Step s) { return Number(s.phases().optimizer_seconds()); }},
      {"checkpoint_seconds", [](Step s) { return Number(s.phases().checkpoint_seconds()); }},
      {"evaluate_seconds", [](Step s) { return Number(s.phases().evaluate_seconds()); }},
      {"other_seconds", [](Step s) { return Number(s.phases().other_seconds()); }},
      {"unattributed_seconds", [](Step s) { return Number(s.phases().unattributed_seconds()); }},
      {"skipped", [](Step s) { return s.skipped() ? "1" : "0"; }},
      {"spike", [](Step s) { return s.spike() ? "1" : "0"; }},
      {"rolled_back", [](Step s) { return s.rolled_back() ? "1" : "0"; }},
  };
  return fields;
}

std::string CsvLine(const std::function<std::string(const Field&)>& cell) {
  return absl::StrCat(absl::StrJoin(Fields(), ",",
                                    [&cell](std::string* out, const Field& field) {
                                      absl::StrAppend(out, cell(field));
                                    }),
                      "\n");
}

constexpr char kTableHeader[] =
    "    STEP      LOSS       VAL  GRAD NORM         LR    TOKENS/S      STEP     MFU  PEAK "
    "MEMORY\n";

// Fixed widths: rows come one at a time.
std::string TableLine(const v1::StepMetrics& step) {
  std::string marks = step.rolled_back() ? "  rolled back" : step.skipped() ? "  skipped" : "";
  for (const v1::EvaluationLoss& set : step.evaluations()) {
    absl::StrAppend(&marks, "  ", set.name(), " ", LossText(set.loss()));
  }
  return absl::StrFormat(
      "%8d  %8s  %8s  %9.4g  %9.3g  %10s  %8s  %6s  %11s%s\n", step.step(), LossText(step.loss()),
      step.has_validation_loss() ? LossText(step.validation_loss()) : "-",
      UnsignedNan(step.grad_norm()), step.lr(), ShortNumber(step.tokens_per_second()),
      StepSecondsText(step.step_seconds()),
      step.mfu() > 0 ? absl::StrFormat("%.1f%%", step.mfu() * 100) : "-",
      BytesText(step.memory_peak_bytes()), marks);
}

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const bool follow = run.flags().GetBool("follow");
  const std::string format = run.flags().GetString("output");
  StreamOptions options;
  options.on_reconnect = ReconnectNote(run);
  bool has_header = format == "jsonl";
  const auto header = [&] {
    if (has_header) return;
    has_header = true;
    run.out() << (format == "csv" ? CsvLine([](const Field& field) { return field.name; })
                                  : std::string(kTableHeader));
  };
  const absl::Status status = (*client)->StreamMetrics(
      run.flags().positional().front(), run.flags().GetInt("since-offset"), follow, options,
      [&](const v1::StepMetrics& step) {
        header();
        if (format == "jsonl") {
          run.out() << ToJsonLine(step);
        } else if (format == "csv") {
          run.out() << CsvLine([&step](const Field& field) { return field.value(step); });
        } else {
          run.out() << TableLine(step);
        }
        if (follow) run.out() << std::flush;
        return run.out().good();
      });
  if (!status.ok()) return run.Fail(status);
  header();
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command MetricsCommand() {
  Command command;
  command.name = "metrics";
  command.summary = "Loss, rates, memory and phases of every step; -f follows";
  command.arguments = "JOB";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.flags = {{.name = "follow", .short_name = 'f', .help = "Until the job is finished"},
                   {.name = "since-offset",
                    .kind = FlagKind::kInt,
                    .value_name = "OFFSET",
                    .help = "Only what came after this offset (of -o jsonl)",
                    .default_value = "0"},
                   OutputFlag({"table", "csv", "jsonl"})};
  command.examples = {{"fsdpctl metrics -f my-job-1a2b3c4d", "watch it train"},
                      {"fsdpctl metrics my-job-1a2b3c4d -o csv > steps.csv", "for a spreadsheet"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

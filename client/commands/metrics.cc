#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/tensorboard.h"
#include "proto/support/spec.h"
#include "proto/support/status.h"
#include "proto/support/text.h"

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
      {"hfu", [](Step s) { return s.hfu() > 0 ? Number(s.hfu()) : ""; }},
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

// RFC 4180: names may hold commas and quotes.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// One line per step: the fields, then a column for each of the job's evaluation sets, in the order
// of the spec.
class CsvForm {
 public:
  explicit CsvForm(const v1::JobSpec& spec) {
    for (const v1::DataMixture& set : spec.data().evaluation_sets()) {
      sets_.push_back(EvaluationSetName(set));
    }
  }

  [[nodiscard]] std::string Header() const {
    std::vector<std::string> cells;
    for (const Field& field : Fields()) cells.emplace_back(field.name);
    for (const std::string& set : sets_) cells.push_back(CsvCell("evaluation_loss." + set));
    return absl::StrJoin(cells, ",") + "\n";
  }

  // A set that this step was not evaluated on has an empty cell.
  [[nodiscard]] std::string Line(const v1::StepMetrics& step) const {
    std::vector<std::string> cells;
    for (const Field& field : Fields()) cells.push_back(field.value(step));
    for (const std::string& set : sets_) {
      const auto& losses = step.evaluations();
      const auto found = std::find_if(losses.begin(), losses.end(),
                                      [&set](const auto& loss) { return loss.name() == set; });
      cells.push_back(found == losses.end() ? "" : Number(found->loss()));
    }
    return absl::StrJoin(cells, ",") + "\n";
  }

 private:
  std::vector<std::string> sets_;
};

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

// Where -o tensorboard writes: one file a call, as TensorBoard expects it.
absl::StatusOr<std::ofstream> OpenEvents(const CommandRun& run, absl::Time now) {
  const std::string& folder = run.flags().GetString("logdir");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", folder, ")"));
  const std::string path =
      absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixNanos(now), ".fsdpctl");
  std::ofstream file(path, std::ios::binary);
  file << TensorboardHeader(now);
  if (!file) return ErrnoToStatus(errno, absl::StrCat("write(", path, ")"));
  return file;
}

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const bool follow = run.flags().GetBool("follow");
  const std::string format = run.flags().GetString("output");
  StreamOptions options;
  options.on_reconnect = ReconnectNote(run);
  const std::string job = run.flags().positional().front();
  std::optional<CsvForm> csv;
  std::ofstream events;
  if (format == "tensorboard") {
    if (!run.flags().Has("logdir")) return run.UsageError("give -o tensorboard --logdir DIR");
    auto opened = OpenEvents(run, run.world().clock->WallNow());
    if (!opened.ok()) return run.Fail(opened.status());
    events = *std::move(opened);
  }
  if (format == "csv") {
    const auto known = (*client)->GetJob(job);
    if (!known.ok()) return run.Fail(known.status());
    csv.emplace(known->spec().spec());
  }
  bool has_header = format == "jsonl" || format == "tensorboard";
  const auto header = [&] {
    if (has_header) return;
    has_header = true;
    run.out() << (csv ? csv->Header() : kTableHeader);
  };
  const absl::Status status = (*client)->StreamMetrics(
      job, run.flags().GetInt("since-offset"), follow, options, [&](const v1::StepMetrics& step) {
        header();
        if (format == "tensorboard") {
          events << TensorboardRecord(step);
          if (follow) events << std::flush;
          return events.good();
        }
        if (format == "jsonl") {
          run.out() << ToJsonLine(step);
        } else if (csv) {
          run.out() << csv->Line(step);
        } else {
          run.out() << TableLine(step);
        }
        if (follow) run.out() << std::flush;
        return run.out().good();
      });
  if (!status.ok()) return run.Fail(status);
  if (events.is_open() && !events.flush()) {
    return run.Fail(
        ErrnoToStatus(errno, absl::StrCat("writing to ", run.flags().GetString("logdir"))));
  }
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
                   {.name = "logdir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Of -o tensorboard: the folder that gets a file of events"},
                   OutputFlag({"table", "csv", "jsonl", "tensorboard"})};
  command.examples = {
      {"fsdpctl metrics -f my-job-1a2b3c4d", "watch it train"},
      {"fsdpctl metrics my-job-1a2b3c4d -o csv > steps.csv", "for a spreadsheet"},
      {"fsdpctl metrics -f my-job-1a2b3c4d -o tensorboard --logdir runs/a", "for TensorBoard"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp

#include "client/render/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/exit_code.h"
#include "client/render/table.h"
#include "client/render/views.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

// Nats per token to bits per byte.
std::string BitsPerByte(double nats, double bytes_per_token) {
  return LossText(nats / std::numbers::ln2 / bytes_per_token);
}

// Text without a tokenizer has one byte a token; unknown for foreign token files.
std::optional<double> BytesPerToken(const v1::Job& job) {
  if (job.result().bytes_per_token() > 0) return job.result().bytes_per_token();
  const auto& data = job.spec().spec().data();
  if (data.source() == v1::DATA_SOURCE_TEXT && data.tokenizer().empty()) return 1.0;
  return std::nullopt;
}

std::string LossTable(const v1::Job& job) {
  const v1::JobResult& result = job.result();
  const std::optional<double> bytes_per_token = BytesPerToken(job);
  Table table({{""}, {"NATS/TOKEN", true}, {"BITS/BYTE", true}});
  const auto add = [&](const std::string& name, double nats) {
    table.AddRow({name, LossText(nats),
                  bytes_per_token ? BitsPerByte(nats, *bytes_per_token) : std::string("-")});
  };
  add("train loss", result.train_loss());
  if (result.has_validation_loss()) add("validation loss", result.validation_loss());
  for (const v1::EvaluationLoss& set : result.evaluations()) {
    add(absl::StrCat("loss of ", set.name()), set.loss());
  }
  if (result.has_bigram_conditional_entropy()) {
    add("bigram conditional entropy", result.bigram_conditional_entropy());
  }
  if (result.has_unigram_entropy()) add("unigram entropy", result.unigram_entropy());
  return table.Render("  ");
}

std::string ComparisonText(const v1::JobResult& result, const Style& style) {
  if (!result.has_validation_loss() || !result.has_bigram_conditional_entropy()) return "";
  const double gain = result.bigram_conditional_entropy() - result.validation_loss();
  if (gain > 0) {
    return absl::StrFormat(
        "  %s the model predicts unseen text better than byte pairs do, by %.3f "
        "nats a token\n",
        style.Green("✓"), gain);
  }
  return absl::StrFormat(
      "  %s not yet better than byte pairs (by %.3f nats a token): train longer\n",
      style.Yellow("!"), -gain);
}

std::string MemoryTable(const v1::Job& job) {
  Table table({{"RANK", true}, {"PEAK MEMORY", true}, {"PLANNED", true}, {"WORKER"}});
  const auto& peaks = job.result().memory_peak_bytes_by_rank();
  for (int rank = 0; rank < std::max(peaks.size(), job.ranks_size()); ++rank) {
    std::int64_t peak_bytes = rank < peaks.size() ? peaks[rank] : 0;
    std::int64_t planned_bytes = 0;
    std::string worker = "-";
    for (const auto& status : job.ranks()) {
      if (status.rank() != rank) continue;
      worker = IdOf(status.worker());
      planned_bytes = status.memory_planned_bytes();
      if (peak_bytes == 0) peak_bytes = status.memory_peak_bytes();
    }
    table.AddRow({absl::StrCat(rank), peak_bytes > 0 ? BytesText(peak_bytes) : "-",
                  planned_bytes > 0 ? BytesText(planned_bytes) : "-", worker});
  }
  return table.empty() ? "" : table.Render("  ");
}

std::string FamilyTable(const v1::JobResult& result) {
  double total_seconds = 0;
  for (const auto& family : result.families()) total_seconds += family.seconds();
  Table table({{"KERNEL FAMILY"},
               {"TIME", true},
               {"BOUND BY"},
               {"COMPUTE", true},
               {"MEMORY", true},
               {"SOURCE"},
               {"REMEDY"}});
  for (const auto& family : result.families()) {
    const double share = total_seconds > 0 ? family.seconds() / total_seconds : 0;
    table.AddRow({family.family(), absl::StrFormat("%.1f%%", share * 100), EnumText(family.bound()),
                  absl::StrFormat("%.0f%%", family.compute_ratio() * 100),
                  absl::StrFormat("%.0f%%", family.memory_ratio() * 100), EnumText(family.source()),
                  Printable(family.remedy())});
  }
  return table.empty() ? "" : table.Render("  ");
}

void AddSection(const std::string& title, const std::string& body, const Style& style,
                std::string* page) {
  if (body.empty()) return;
  absl::StrAppend(page, "\n", style.Bold(title), "\n", body);
}

std::string PlacesText(const ReportInput& input) {
  std::string text;
  const auto& checkpoint = input.job.checkpoint();
  if (!checkpoint.path().empty()) {
    absl::StrAppend(&text, "  checkpoint   ", checkpoint.path(), "  (step ", checkpoint.step(),
                    ")\n");
  }
  if (!input.metrics_address.empty()) {
    absl::StrAppend(&text, "  metrics      http://", input.metrics_address, "/metrics\n");
  }
  if (!input.plot_path.empty()) absl::StrAppend(&text, "  loss curve   ", input.plot_path, "\n");
  return text;
}

std::string NextCommands(const v1::Job& job) {
  const std::string id = IdOf(job.name());
  return absl::StrCat("  fsdpctl describe ", id, "             # ranks, attempts, events\n",
                      "  fsdpctl metrics ", id, " -o csv > m.csv  # every step\n",
                      "  fsdpctl logs ", id, " --rank 0\n", "  fsdpctl events ", id, "\n");
}

}  // namespace

std::vector<CurveSeries> LossSeries(const std::vector<v1::StepMetrics>& metrics) {
  CurveSeries train{"train loss", {}};
  CurveSeries validation{"validation loss", {}};
  for (const auto& step : metrics) {
    const auto x = static_cast<double>(step.step());
    // Steps done again after a restart replace what was drawn of them.
    for (auto* points : {&train.points, &validation.points}) {
      while (!points->empty() && points->back().x >= x) points->pop_back();
    }
    train.points.push_back({x, step.loss()});
    if (step.has_validation_loss()) validation.points.push_back({x, step.validation_loss()});
  }
  std::vector<CurveSeries> series = {std::move(train)};
  if (!validation.points.empty()) series.push_back(std::move(validation));
  return series;
}

CurveOptions LossCurveOptions(const v1::Job& job) {
  CurveOptions options;
  options.title = absl::StrCat("Loss of ", IdOf(job.name()));
  options.y_label = "nats per token";
  const auto& result = job.result();
  if (result.has_bigram_conditional_entropy()) {
    options.levels.push_back({"bigram entropy", result.bigram_conditional_entropy()});
  }
  if (result.has_unigram_entropy()) {
    options.levels.push_back({"unigram entropy", result.unigram_entropy()});
  }
  return options;
}

std::string ReportText(const ReportInput& input, const Style& style) {
  const v1::Job& job = input.job;
  const v1::JobResult& result = job.result();
  std::string page =
      absl::StrCat(style.Bold(IdOf(job.name())), "  ", style.State(job.state()), "\n");
  if (!job.reason().empty()) absl::StrAppend(&page, "  ", Printable(job.reason()), "\n");
  if (job.has_result()) {
    absl::StrAppend(
        &page, "  ", CountText(result.steps()), " steps, ", CountText(result.tokens()),
        " tokens in ", SecondsText(result.run_seconds()),
        result.run_seconds() > 0
            ? absl::StrCat(", ",
                           ShortNumber(static_cast<double>(result.tokens()) / result.run_seconds()),
                           " tokens/s")
            : "",
        "\n");
    AddSection("Loss", LossTable(job) + ComparisonText(result, style), style, &page);
    AddSection("Data", DataSourcesTable(result), style, &page);
    AddSection("Memory", MemoryTable(job), style, &page);
    AddSection("What bounds each kernel family", FamilyTable(result), style, &page);
  } else if (RootCauseIsCurrent(job)) {
    absl::StrAppend(&page, "  ", style.Red(RootCauseText(job.root_cause())), "\n");
  }
  AddSection("Curve",
             TerminalCurve(LossSeries(input.metrics), LossCurveOptions(job),
                           std::clamp(input.columns, 40, 100), 12, style),
             style, &page);
  AddSection("Where", PlacesText(input), style, &page);
  AddSection("Next", NextCommands(job), style, &page);
  return page;
}

}  // namespace fsdp

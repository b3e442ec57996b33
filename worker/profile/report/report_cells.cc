#include "worker/profile/report/report_cells.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Of a step: the bound for what families and gaps may miss.
constexpr double kMostDifference = 0.01;

double Ratio(double part, double whole) { return whole > 0 ? part / whole : kNone; }

std::string Plural(std::int64_t count, const char* word) {
  return absl::StrCat(count, " ", word, count == 1 ? "" : "s");
}

std::string BoundOf(const FamilyRow& row) {
  if (row.ranks_agreeing == row.num_ranks) return BoundText(row.bound);
  return absl::StrCat(BoundText(row.bound), " (", row.ranks_agreeing, " of ", row.num_ranks,
                      " ranks)");
}

std::string RatioText(double ratio) { return ratio > 0 ? PercentText(ratio) : "-"; }

}  // namespace

std::string SizeSentence(const KernelReport& report) {
  const auto steps = static_cast<double>(report.rank_steps);
  return absl::StrCat(Plural(report.num_ranks, "rank"), ", ",
                      CallsText(steps / std::max(1, report.num_ranks)), " steps each, ",
                      TimeText(report.step_seconds / steps), " a step");
}

const std::vector<TextColumn>& KernelColumns() {
  static const auto& columns = *new std::vector<TextColumn>{
      {"kernel", false}, {"family", false}, {"shape", false}, {"self"},
      {"% step"},        {"calls"},         {"mean"},         {"FLOP/s"},
      {"bytes/s"},       {"of roof"},       {"bound", false},
  };
  return columns;
}

std::vector<std::string> KernelCells(const KernelReport& report, const KernelRow& row) {
  const auto steps = static_cast<double>(report.rank_steps);
  const double seconds = row.self_seconds;
  return {CleanText(row.name),
          CleanText(row.family),
          CleanText(row.shape),
          TimeText(seconds / steps),
          PercentText(Ratio(seconds, report.step_seconds)),
          CallsText(static_cast<double>(row.calls) / steps),
          TimeText(seconds / static_cast<double>(std::max<std::int64_t>(1, row.calls))),
          RateText(Ratio(row.flops, seconds)),
          RateText(Ratio(row.bytes, seconds)),
          row.roof_seconds > 0 ? PercentText(Ratio(row.roof_seconds, row.judged_seconds)) : "-",
          BoundText(row.bound)};
}

std::string RestOfKernels(const KernelReport& report, std::size_t top) {
  if (report.kernels.size() <= top) return "";
  double all = 0, rest = 0;
  for (std::size_t i = 0; i < report.kernels.size(); ++i) {
    all += report.kernels[i].self_seconds;
    if (i >= top) rest += report.kernels[i].self_seconds;
  }
  const auto count = static_cast<std::int64_t>(report.kernels.size() - top);
  return absl::StrCat("... ", count, " more ", count == 1 ? "row, " : "rows, ",
                      PercentText(Ratio(rest, all)), " of the time\n");
}

const std::vector<TextColumn>& FamilyColumns() {
  static const auto& columns = *new std::vector<TextColumn>{
      {"family", false}, {"time"},          {"% step"},        {"launches"},
      {"compute"},       {"memory"},        {"tensor"},        {"savable"},
      {"bound", false},  {"source", false}, {"remedy", false},
  };
  return columns;
}

std::vector<std::string> FamilyCells(const KernelReport& report, const FamilyRow& row) {
  const auto steps = static_cast<double>(report.rank_steps);
  const bool is_communication = row.bound == v1::BOUND_COMMUNICATION;
  std::string source = SourceText(row.source);
  if (row.samples > 0) absl::StrAppend(&source, ", ", Plural(row.samples, "sample"));
  return {CleanText(row.family), TimeText(row.seconds / steps),
          PercentText(Ratio(row.seconds, report.step_seconds)),
          CallsText(static_cast<double>(row.launches) / steps),
          // A collective's bytes go over the wire; the roofs are the device's.
          is_communication ? "-" : RatioText(row.compute_ratio),
          is_communication ? "-" : RatioText(row.memory_ratio), RatioText(row.tensor_ratio),
          row.savable_seconds > 0 ? TimeText(row.savable_seconds / steps) : "-", BoundOf(row),
          source, CleanText(row.remedy)};
}

const std::vector<TextColumn>& CollectiveColumns() {
  static const auto& columns = *new std::vector<TextColumn>{
      {"collective", false}, {"calls"}, {"time"}, {"mean"}, {"exposed"}, {"hidden"}, {"bytes/s"},
  };
  return columns;
}

std::vector<std::string> CollectiveCells(const KernelReport& report, const CollectiveRow& row) {
  const auto steps = static_cast<double>(report.rank_steps);
  return {CleanText(row.name),
          CallsText(static_cast<double>(row.calls) / steps),
          TimeText(row.seconds / steps),
          TimeText(row.seconds / static_cast<double>(std::max<std::int64_t>(1, row.calls))),
          TimeText(row.exposed_seconds / steps),
          PercentText(1 - Ratio(row.exposed_seconds, row.seconds)),
          RateText(Ratio(row.bytes, row.seconds))};
}

const std::vector<TextColumn>& CoverageColumns() {
  static const auto& columns = *new std::vector<TextColumn>{
      {"rank"},        {"steps"},      {"families"},      {"gaps"},
      {"longest gap"}, {"difference"}, {"communication"}, {"of it exposed"},
  };
  return columns;
}

std::vector<std::string> CoverageCells(const CoverageRow& row) {
  return {absl::StrCat(row.rank),
          TimeText(row.step_seconds),
          TimeText(row.family_seconds),
          TimeText(row.gap_seconds),
          TimeText(row.longest_gap_seconds),
          PercentText(row.difference_ratio),
          TimeText(row.communication_seconds),
          TimeText(row.exposed_seconds)};
}

std::string CoverageWarning(const KernelReport& report) {
  std::vector<std::string> ranks;
  for (const CoverageRow& row : report.coverage) {
    if (row.difference_ratio > kMostDifference) {
      ranks.push_back(absl::StrCat(row.rank, " by ", PercentText(row.difference_ratio)));
    }
  }
  if (ranks.empty()) return "";
  return absl::StrCat("Families and gaps miss the step's time on rank ",
                      absl::StrJoin(ranks, ", on rank "),
                      ": launches overlap each other on the compute track.");
}

}  // namespace fsdp::report

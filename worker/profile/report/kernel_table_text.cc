#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/profile/report/kernel_table.h"
#include "worker/profile/report/report_cells.h"
#include "worker/profile/report/report_text.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::size_t kNameWidth = 36, kShapeWidth = 28;

std::string KernelText(const KernelReport& report, std::size_t top) {
  const TextRows rows = RowsOf(report.kernels, top, [&](const KernelRow& kernel) {
    std::vector<std::string> row = KernelCells(report, kernel);
    row[0] = Shortened(row[0], kNameWidth);
    row[2] = Shortened(row[2], kShapeWidth);
    return row;
  });
  return absl::StrCat(AlignedTable(KernelColumns(), rows), RestOfKernels(report, top));
}

std::string FamilyText(const KernelReport& report) {
  return AlignedTable(FamilyColumns(), RowsOf(report.families, kAllRows, [&](const auto& family) {
                        return FamilyCells(report, family);
                      }));
}

std::string CollectiveText(const KernelReport& report, std::size_t top) {
  return AlignedTable(CollectiveColumns(), RowsOf(report.collectives, top, [&](const auto& row) {
                        return CollectiveCells(report, row);
                      }));
}

std::string CoverageText(const KernelReport& report) {
  return AlignedTable(CoverageColumns(), RowsOf(report.coverage, kAllRows, CoverageCells));
}

// Ranks that are not in the tables, and what is said of those that are.
std::string MissingText(const v1::JobProfile& profile) {
  std::string lines;
  for (const std::string& missing : profile.missing()) {
    absl::StrAppend(&lines, "- ", CleanText(missing), "\n");
  }
  for (const auto& rank : profile.ranks()) {
    for (const std::string& note : rank.notes()) {
      absl::StrAppend(&lines, "- rank ", rank.rank(), ": ", CleanText(note), "\n");
    }
  }
  return lines.empty() ? "" : absl::StrCat("\nWhat is missing:\n\n", lines);
}

}  // namespace
}  // namespace report

std::string KernelTableText(const v1::JobProfile& profile, int top) {
  return KernelTableText(profile, BuildKernelReport(profile), top);
}

std::string KernelTableText(const v1::JobProfile& profile, const KernelReport& report, int top) {
  if (report.num_ranks == 0) return "The profile has no recordings.\n";
  const std::size_t limit = top > 0 ? static_cast<std::size_t>(top) : report::kAllRows;
  std::string text =
      absl::StrCat(report::CleanText(profile.job()), ": ", report::SizeSentence(report), "\n\n");
  absl::StrAppend(&text, "Kernels by self time; times and calls are of one rank and step.\n\n",
                  report::KernelText(report, limit));
  if (!report.families.empty()) {
    absl::StrAppend(
        &text, "\nFamilies: what bounds them, and what reaching the nearer roof would save.\n\n",
        report::FamilyText(report));
  }
  if (!report.collectives.empty()) {
    absl::StrAppend(&text, "\nCollectives; exposed is what ran while nothing computed.\n\n",
                    report::CollectiveText(report, limit));
  }
  absl::StrAppend(&text, "\nSteps: families + gaps = step, within the difference.\n\n",
                  report::CoverageText(report));
  const std::string warning = report::CoverageWarning(report);
  if (!warning.empty()) absl::StrAppend(&text, "\n", warning, "\n");
  if (report.spans_dropped > 0) {
    absl::StrAppend(&text, "\n", report.spans_dropped,
                    " spans did not fit into the recordings: these tables lack them.\n");
  }
  return text + report::MissingText(profile);
}

}  // namespace fsdp

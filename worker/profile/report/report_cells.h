#ifndef FSDPCTL_WORKER_PROFILE_REPORT_REPORT_CELLS_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_REPORT_CELLS_H_

// The tables of a KernelReport as cells of text, for kernels.txt and report.html alike. Cells are
// not escaped. Thread-safe (no state).

#include <cstddef>
#include <string>
#include <vector>

#include "worker/profile/report/kernel_table.h"
#include "worker/profile/report/report_text.h"

namespace fsdp::report {

// "4 ranks, 5 steps each, 12.3 ms a step".
std::string SizeSentence(const KernelReport& report);

const std::vector<TextColumn>& KernelColumns();
std::vector<std::string> KernelCells(const KernelReport& report, const KernelRow& row);
// "... 12 more rows, 3.2 % of the time" with a line end; empty when `top` are all.
std::string RestOfKernels(const KernelReport& report, std::size_t top);

const std::vector<TextColumn>& FamilyColumns();
std::vector<std::string> FamilyCells(const KernelReport& report, const FamilyRow& row);

const std::vector<TextColumn>& CollectiveColumns();
std::vector<std::string> CollectiveCells(const KernelReport& report, const CollectiveRow& row);

const std::vector<TextColumn>& CoverageColumns();
std::vector<std::string> CoverageCells(const CoverageRow& row);
// Where families and gaps miss a step by more than 1 %; empty where they do not.
std::string CoverageWarning(const KernelReport& report);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_REPORT_CELLS_H_

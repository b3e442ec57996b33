#include "client/render/anatomy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/render/table.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

constexpr double kSmallShare = 0.005;

std::string RatioText(double ratio) { return absl::StrFormat("%.0f %%", ratio * 100); }

}  // namespace

std::string AnatomyText(const v1::Progress& progress) {
  std::vector<std::pair<double, const char*>> parts = StepParts(progress.phases());
  double total = 0;
  for (const auto& [seconds, name] : parts) total += seconds;
  if (total <= 0) return "";
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = absl::StrCat("step ", StepSecondsText(total), ":");
  const char* separator = " ";
  for (const auto& [seconds, name] : parts) {
    if (seconds < kSmallShare * total) break;
    absl::StrAppend(&text, separator, name, " ", StepSecondsText(seconds), " (",
                    RatioText(seconds / total), ")");
    separator = ", ";
  }
  return text;
}

std::string FamilyTable(const v1::Job& job, int top, const std::string& indent) {
  double total = 0;
  for (const v1::FamilyVerdict& family : job.families()) total += family.seconds();
  if (total <= 0) return "";
  Table table({{"FAMILY"},
               {"TIME", true},
               {"BOUND"},
               {"COMPUTE", true},
               {"MEMORY", true},
               {"SAVABLE", true},
               {"REMEDY"}});
  const int rows = std::min(top, job.families_size());
  for (int i = 0; i < rows; ++i) {
    const v1::FamilyVerdict& family = job.families(i);
    table.AddRow({family.family(), RatioText(family.seconds() / total), EnumText(family.bound()),
                  RatioText(family.compute_ratio()), RatioText(family.memory_ratio()),
                  RatioText(family.savable_seconds() / total),
                  family.remedy().empty() ? "-" : family.remedy()});
  }
  return table.Render(indent);
}

}  // namespace fsdp

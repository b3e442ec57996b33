#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/profile/report/profile_compare.h"
#include "worker/profile/report/report_text.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::size_t kMaxSentences = 5;
constexpr std::size_t kMaxLateRanks = 3;
// Of the step: smaller contributions are left to the table.
constexpr double kWorthASentence = 0.005;

std::string Signed(double seconds) {
  return absl::StrCat(seconds > 0 ? "+" : "", TimeText(seconds));
}

std::string Headline(const Comparison& comparison) {
  const double before = comparison.before_seconds, after = comparison.after_seconds;
  std::string text = absl::StrCat("A step took ", TimeText(before), " and takes ", TimeText(after));
  if (before > 0 && after > 0) {
    absl::StrAppendFormat(&text, ": %s (%+.1f %%)", Signed(after - before),
                          (after / before - 1) * 100);
  }
  return text + ".\n";
}

std::string Sentences(const Comparison& comparison) {
  const double step = std::max(comparison.before_seconds, comparison.after_seconds);
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxSentences, comparison.contributions.size()); ++i) {
    const Contribution& one = comparison.contributions[i];
    if (std::abs(one.difference_seconds) < kWorthASentence * step) break;
    absl::StrAppend(&text, "- ", one.sentence, ".\n");
  }
  for (std::size_t i = 0; i < std::min(kMaxLateRanks, comparison.late_ranks.size()); ++i) {
    absl::StrAppend(&text, "- ", comparison.late_ranks[i].sentence, ".\n");
  }
  return text.empty() ? "No family's time differs by more than 0.5 % of the step.\n" : text;
}

std::string FamilyTable(const Comparison& comparison) {
  const std::vector<TextColumn> columns = {{"family", false}, {"before"}, {"after"}, {"difference"},
                                           {"calls"},         {"now"},    {"each"},  {"now"},
                                           {"FLOPs"},         {"bytes"}};
  const auto each = [](const FamilyShare& share) {
    return share.calls > 0 ? TimeText(share.busy_seconds / share.calls) : "-";
  };
  const auto change = [](double before, double after) -> std::string {
    if (before <= 0 || after <= 0) return before == after ? "-" : after > 0 ? "new" : "gone";
    return absl::StrFormat("%+.1f %%", (after / before - 1) * 100);
  };
  TextRows rows = RowsOf(comparison.contributions, kAllRows, [&](const Contribution& one) {
    return std::vector<std::string>{
        absl::StrCat(CleanText(one.name), one.is_exposed_time ? " (exposed)" : ""),
        TimeText(one.before.seconds),
        TimeText(one.after.seconds),
        Signed(one.difference_seconds),
        CallsText(one.before.calls),
        CallsText(one.after.calls),
        each(one.before),
        each(one.after),
        change(one.before.flops, one.after.flops),
        change(one.before.bytes, one.after.bytes)};
  });
  rows.push_back({"step", TimeText(comparison.before_seconds), TimeText(comparison.after_seconds),
                  Signed(comparison.after_seconds - comparison.before_seconds), "", "", "", "", "",
                  ""});
  return AlignedTable(columns, rows);
}

std::string PhaseTable(const Comparison& comparison) {
  const std::vector<TextColumn> columns = {{"phase", false}, {"before"}, {"after"}, {"difference"}};
  TextRows rows;
  for (const PhaseDifference& phase : comparison.phases) {
    if (phase.before_seconds == 0 && phase.after_seconds == 0) continue;
    rows.push_back({phase.phase, TimeText(phase.before_seconds), TimeText(phase.after_seconds),
                    Signed(phase.after_seconds - phase.before_seconds)});
  }
  return AlignedTable(columns, rows);
}

}  // namespace
}  // namespace report

std::string CompareText(const v1::JobProfile& before, const v1::JobProfile& after) {
  const Comparison comparison = Compare(before, after);
  std::string text = report::Headline(comparison);
  for (const std::string& warning : comparison.warnings) {
    absl::StrAppend(&text, "Note: ", warning, ".\n");
  }
  absl::StrAppend(&text, "\n", report::Sentences(comparison),
                  "\nBy family, means of one rank and step:\n\n", report::FamilyTable(comparison),
                  "\nBy phase:\n\n", report::PhaseTable(comparison));
  return text;
}

}  // namespace fsdp

#ifndef FSDPCTL_WORKER_PROFILE_REPORT_HTML_PARTS_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_HTML_PARTS_H_

// Pieces of the report's page. Texts are escaped here; pieces named "html" are not. Thread-safe (no
// state).

#include <string>
#include <utility>
#include <vector>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/step_anatomy.h"

namespace fsdp::report {

// The page's style sheet.
const char* PageStyle();

// A part of the page with a heading that links can point at.
std::string Section(const std::string& id, const std::string& title, const std::string& html);
std::string Paragraph(const std::string& text);
// In a box that scrolls sideways, by keyboard too. `label` is read out before the table.
std::string HtmlTable(const std::string& label, const std::vector<TextColumn>& columns,
                      const TextRows& rows);
// Names with their values.
std::string FactList(const std::vector<std::pair<std::string, std::string>>& facts);
std::string BulletList(const std::vector<std::string>& texts);

// One bar a rank, its phases in colours, all on the scale of the longest step; with a legend.
std::string AnatomyBars(const std::vector<RankAnatomy>& anatomies);
// A counter over time, one line a rank, in the unit of the first that has it; empty where none has.
std::string CounterCurves(const std::vector<AlignedRank>& ranks, const std::string& counter);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_HTML_PARTS_H_

#include "worker/profile/report/html_report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "worker/profile/report/collective_skew.h"
#include "worker/profile/report/html_parts.h"
#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/report_cells.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/roofline_svg.h"
#include "worker/profile/report/span_times.h"
#include "worker/profile/report/step_anatomy.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::size_t kMaxSkews = 20;
constexpr std::size_t kMaxNotes = 200;

// Everything that the sections draw from.
struct Page {
  const v1::JobProfile& profile;
  const HtmlOptions& options;
  std::vector<AlignedRank> ranks;
  const KernelReport& kernels;
  std::vector<RankAnatomy> anatomies;
  SkewReport skew;
};

// "NVIDIA H200 (4 ranks), ...".
std::string Counted(const Page& page, std::string (*get)(const v1::RankProfile&)) {
  std::map<std::string, int> counts;
  for (const AlignedRank& rank : page.ranks) ++counts[get(*rank.profile)];
  std::vector<std::string> texts;
  for (const auto& [text, count] : counts) {
    const std::string name = text.empty() ? "unknown" : text;
    texts.push_back(counts.size() == 1 ? name : absl::StrCat(name, " (", count, " ranks)"));
  }
  return absl::StrJoin(texts, ", ");
}

std::string StepTimeText(const Page& page) {
  if (page.anatomies.empty()) return "no step was recorded";
  double sum = 0, least = page.anatomies.front().step_seconds, most = least;
  for (const RankAnatomy& rank : page.anatomies) {
    sum += rank.step_seconds;
    least = std::min(least, rank.step_seconds);
    most = std::max(most, rank.step_seconds);
  }
  return absl::StrCat(TimeText(sum / static_cast<double>(page.anatomies.size())), " (",
                      TimeText(least), " to ", TimeText(most), " by rank)");
}

std::string UtilizationText(const Page& page, double RankAnatomy::* ratio) {
  double sum = 0;
  int count = 0;
  for (const RankAnatomy& rank : page.anatomies) {
    if (rank.*ratio <= 0) continue;
    sum += rank.*ratio;
    ++count;
  }
  return count == 0 ? "unknown" : PercentText(sum / count);
}

std::string Summary(const Page& page) {
  std::vector<std::pair<std::string, std::string>> facts = {{"Job", page.profile.job()},
                                                            {"Profile", page.profile.profile()}};
  if (!page.ranks.empty()) {
    const v1::RankProfile& first = *page.ranks.front().profile;
    const absl::Time begin = absl::FromUnixSeconds(first.begin_time().seconds());
    facts.insert(
        facts.end(),
        {{"Begun", absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", begin, absl::UTCTimeZone())},
         {"Ranks", absl::StrCat(page.ranks.size(), " of ", first.world_size())},
         {"Steps", absl::StrCat(first.first_step(), " to ", first.last_step())},
         {"Step time", StepTimeText(page)},
         {"MFU, of the measured matmul ceiling", UtilizationText(page, &RankAnatomy::mfu)},
         {"HFU, with recomputation", UtilizationText(page, &RankAnatomy::hfu)},
         {"Devices", Counted(page, [](const v1::RankProfile& r) { return r.device(); })},
         {"Hosts", Counted(page, [](const v1::RankProfile& r) { return r.host(); })},
         {"Dtype", Counted(page, [](const v1::RankProfile& r) { return r.dtype(); })},
         {"Launch times",
          Counted(page, [](const v1::RankProfile& r) { return TimingText(r.timing()); })},
         {"Counters", Counted(page,
                              [](const v1::RankProfile& r) {
                                return r.counter_source() == v1::METRIC_SOURCE_UNSPECIFIED
                                           ? std::string("none")
                                           : SourceText(r.counter_source());
                              })},
         {"Version", Counted(page, [](const v1::RankProfile& r) { return r.version(); })}});
  }
  return FactList(facts);
}

std::string Anatomy(const Page& page) {
  if (page.anatomies.empty()) return Paragraph("No step was recorded.");
  std::vector<TextColumn> columns = {{"rank"}, {"step"}};
  TextRows rows = RowsOf(page.anatomies, kAllRows, [](const RankAnatomy& rank) {
    return std::vector<std::string>{absl::StrCat(rank.rank->rank()), TimeText(rank.step_seconds)};
  });
  for (const auto* phases : {&SummedPhases(), &InnerPhases()}) {
    for (const PhaseField& phase : *phases) {
      const auto is_there = [&](const RankAnatomy& rank) {
        return (rank.phases.*phase.get)() != 0;
      };
      if (std::none_of(page.anatomies.begin(), page.anatomies.end(), is_there)) continue;
      columns.push_back({phase.label});
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].push_back(TimeText((page.anatomies[i].phases.*phase.get)()));
      }
    }
  }
  return AnatomyBars(page.anatomies) +
         Paragraph(
             "Means of the recorded steps. The coloured phases add up to a step; overlapped "
             "communication, launch gaps and host idle time lie within them.") +
         HtmlTable("Phases by rank", columns, rows);
}

std::string Families(const Page& page) {
  if (page.kernels.families.empty()) return Paragraph("No family has launches in this profile.");
  return Paragraph(
             "Means of one rank and step. Compute and memory are shares of the measured "
             "roofs; savable is what reaching the nearer roof would save, of communication "
             "the time that steps waited for it.") +
         HtmlTable("Kernel families", FamilyColumns(),
                   RowsOf(page.kernels.families, kAllRows, [&](const FamilyRow& family) {
                     return FamilyCells(page.kernels, family);
                   }));
}

std::size_t TopOf(const Page& page) {
  return static_cast<std::size_t>(std::max(1, page.options.top));
}

std::string Kernels(const Page& page) {
  const std::string rest = RestOfKernels(page.kernels, TopOf(page));
  return Paragraph("Self time and calls are of one rank and step.") +
         HtmlTable("Kernels by self time", KernelColumns(),
                   RowsOf(page.kernels.kernels, TopOf(page),
                          [&](const KernelRow& row) { return KernelCells(page.kernels, row); })) +
         (rest.empty() ? "" : Paragraph(rest.substr(0, rest.size() - 1)));
}

std::string UncertaintyText(std::int64_t uncertainty_ns) {
  return uncertainty_ns < 0 ? "unknown" : absl::StrCat("±", TimeText(Seconds(uncertainty_ns)));
}

std::string Lateness(const Page& page) {
  if (page.skew.ranks.empty()) {
    return Paragraph("No collective was recorded by two ranks: who comes late cannot be told.");
  }
  const TextRows ranks = RowsOf(page.skew.ranks, kAllRows, [](const RankLateness& rank) {
    return std::vector<std::string>{absl::StrCat(rank.rank), TimeText(rank.mean_seconds),
                                    TimeText(rank.largest_seconds),
                                    absl::StrCat(rank.times_last, " of ", rank.collectives),
                                    UncertaintyText(rank.uncertainty_ns)};
  });
  const TextRows skews = RowsOf(page.skew.collectives, kMaxSkews, [](const CollectiveSkew& one) {
    return std::vector<std::string>{one.name,
                                    absl::StrCat(one.sequence),
                                    absl::StrCat(one.step),
                                    TimeText(Seconds(one.skew_ns)),
                                    UncertaintyText(one.uncertainty_ns),
                                    absl::StrCat(one.first_rank),
                                    absl::StrCat(one.last_rank),
                                    TimeText(Seconds(one.wire_ns))};
  });
  return Paragraph(
             "How much later than the first rank each one began a collective. It counts as "
             "last only where the difference is above what the clocks are uncertain.") +
         HtmlTable("Late ranks", {{"rank"}, {"mean"}, {"largest"}, {"times last"}, {"clock"}},
                   ranks) +
         Paragraph("Largest differences; wire is from the last begin to the first end.") +
         HtmlTable("Largest skews",
                   {{"collective", false},
                    {"sequence"},
                    {"step"},
                    {"skew"},
                    {"clocks"},
                    {"first"},
                    {"last"},
                    {"wire"}},
                   skews);
}

std::string Communication(const Page& page) {
  if (page.kernels.collectives.empty()) return Paragraph("No collective was recorded.");
  const TextRows rows =
      RowsOf(page.kernels.collectives, TopOf(page),
             [&](const CollectiveRow& row) { return CollectiveCells(page.kernels, row); });
  return Paragraph("Means of one rank and step; exposed is what ran while nothing computed.") +
         HtmlTable("Collectives", CollectiveColumns(), rows) + Lateness(page);
}

std::string Coverage(const Page& page) {
  const std::string warning = CoverageWarning(page.kernels);
  return Paragraph(
             "Of all recorded steps: what families took on the compute track and the gaps "
             "between them are the steps' time, within the difference.") +
         HtmlTable("Coverage", CoverageColumns(),
                   RowsOf(page.kernels.coverage, kAllRows, CoverageCells)) +
         (warning.empty() ? "" : Paragraph(warning));
}

std::string Memory(const Page& page) {
  const TextRows rows = RowsOf(page.ranks, kAllRows, [](const AlignedRank& rank) {
    const auto peak = static_cast<double>(rank.profile->memory_peak_bytes());
    return std::vector<std::string>{absl::StrCat(rank.profile->rank()),
                                    peak > 0 ? BytesText(peak) : "unknown"};
  });
  return CounterCurves(page.ranks, "memory") +
         HtmlTable("Peak memory by rank", {{"rank"}, {"peak"}}, rows);
}

std::string Counters(const Page& page) {
  std::string html;
  for (const char* counter : {"sm", "hbm", "tensor"}) {
    const std::string curves = CounterCurves(page.ranks, counter);
    if (!curves.empty()) absl::StrAppend(&html, Paragraph(counter), curves);
  }
  return html.empty() ? Paragraph("No hardware counters were read.") : html;
}

std::string Notes(const Page& page) {
  std::vector<std::string> notes(page.profile.missing().begin(), page.profile.missing().end());
  for (const AlignedRank& rank : page.ranks) {
    const std::string title = absl::StrCat("rank ", rank.profile->rank(), ": ");
    if (rank.profile->spans_dropped() > 0) {
      notes.push_back(absl::StrCat(title, rank.profile->spans_dropped(),
                                   " spans did not fit into the recording"));
    }
    if (rank.uncertainty_ns < 0) {
      notes.push_back(absl::StrCat(title, "its clock was not compared with the others'"));
    }
    for (const auto& note : rank.profile->notes()) notes.push_back(absl::StrCat(title, note));
  }
  if (page.options.trace_left_out > 0) {
    notes.push_back(
        absl::StrCat(page.options.trace_left_out, " events did not fit into trace.perfetto-trace"));
  }
  if (page.options.json_left_out > 0) {
    notes.push_back(
        absl::StrCat(page.options.json_left_out, " events did not fit into trace.json.gz"));
  }
  if (notes.empty()) return Paragraph("Nothing is missing.");
  if (notes.size() > kMaxNotes) {
    const std::size_t more = notes.size() - kMaxNotes;
    notes.resize(kMaxNotes);
    notes.push_back(absl::StrCat("... ", more, " more"));
  }
  return BulletList(notes);
}

struct PageSection {
  const char* id;
  const char* title;
  std::string (*html)(const Page&);
};

std::string Roofline(const Page& page) {
  return absl::StrCat(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Roofline\">",
      RooflineSvg(page.profile, page.kernels), "</div>\n");
}

constexpr PageSection kSections[] = {
    {"summary", "Summary", Summary},
    {"anatomy", "Where a step's time goes", Anatomy},
    {"families", "What bounds the kernel families", Families},
    {"roofline", "Roofline", Roofline},
    {"kernels", "Kernels", Kernels},
    {"communication", "Communication", Communication},
    {"coverage", "Is that all of the step?", Coverage},
    {"memory", "Memory", Memory},
    {"counters", "Hardware counters", Counters},
    {"notes", "What is missing", Notes},
};

}  // namespace
}  // namespace report

std::string HtmlReport(const v1::JobProfile& profile, const KernelReport& kernels,
                       const HtmlOptions& options) {
  const report::Page page = {profile,
                             options,
                             report::AlignRanks(profile),
                             kernels,
                             report::Anatomies(profile),
                             BuildSkewReport(profile)};
  const std::string title = report::HtmlEscaped(absl::StrCat("Profile of ", profile.job()));
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      title, "</title>\n<style>\n", report::PageStyle(),
      "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n");
  if (!options.banner.empty()) {
    absl::StrAppend(&html, "<p class=\"banner\" role=\"note\">",
                    report::HtmlEscaped(options.banner), "</p>\n");
  }
  absl::StrAppend(&html, "<header>\n<h1>", title, "</h1>\n<nav aria-label=\"Sections\"><ul>\n");
  for (const report::PageSection& section : report::kSections) {
    absl::StrAppend(&html, "<li><a href=\"#", section.id, "\">", report::HtmlEscaped(section.title),
                    "</a></li>\n");
  }
  absl::StrAppend(&html, "</ul></nav>\n</header>\n<main id=\"main\">\n");
  for (const report::PageSection& section : report::kSections) {
    absl::StrAppend(&html, report::Section(section.id, section.title, section.html(page)));
  }
  absl::StrAppend(&html,
                  "</main>\n<footer>Beside this page: trace.perfetto-trace for Perfetto's viewer "
                  "(ui.perfetto.dev, or any trace_processor), trace.json.gz for tools that read "
                  "Chrome's format, kernels.txt, roofline.svg, and profile.pb for "
                  "fsdpctl profile --compare.</footer>\n</body>\n</html>\n");
  return html;
}

}  // namespace fsdp

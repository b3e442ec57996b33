#include "worker/profile/report/html_parts.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp::report {
namespace {

// The bars' drawing area.
constexpr double kBarLeft = 150, kBarWidth = 730, kBarHeight = 24, kBarStep = 34;
constexpr std::size_t kNumColors = 9;

}  // namespace

const char* PageStyle() {
  return R"(:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#5a6470;--line:#dde1e6;
--head:#f3f5f7;--link:#0b5cad;--warn:#fff4d6;--warn-line:#d9a400;
--c0:#8c6bb1;--c1:#2a8a3e;--c2:#d1495b;--c3:#e8871e;--c4:#1769aa;--c5:#00798c;--c6:#7a9e00;--c7:#8d99ae;--c8:#c4ccd6}
@media (prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e6e9ed;--dim:#9aa4b0;--line:#2a313a;
--head:#1d232a;--link:#6cb4f5;--warn:#3a2f10;--warn-line:#b98c00;
--c0:#b39ddb;--c1:#66c97b;--c2:#f07b8b;--c3:#f3a95b;--c4:#62b0f0;--c5:#4dc3d2;--c6:#b2d235;--c7:#8d99ae;--c8:#4b5563}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
a{color:var(--link)}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;list-style:none;padding:0;margin:.5rem 0}
.banner{background:var(--warn);border-left:4px solid var(--warn-line);padding:.5rem .8rem;margin:0 0 1rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.4rem 1.2rem;margin:0}
.facts div{border-top:1px solid var(--line);padding-top:.25rem;overflow-wrap:anywhere}
dt{color:var(--dim);font-size:.85rem}dd{margin:0}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,a:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:100%}
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{background:var(--head);font-weight:600}
th.t,td.t{text-align:left;max-width:26rem;overflow-wrap:break-word;white-space:normal}
td.w{min-width:16rem}
p,li{max-width:60rem;overflow-wrap:anywhere}
svg.wide{min-width:640px;width:100%;height:auto}
svg.wide text{fill:var(--fg);font:12px system-ui,sans-serif}
svg.rf{max-width:100%;height:auto;min-width:600px}
.skip{position:absolute;left:-999px}.skip:focus{position:static}
footer{margin-top:2rem;color:var(--dim);font-size:.9rem}
@media print{.scroll{overflow:visible}}
)";
}

std::string Section(const std::string& id, const std::string& title, const std::string& html) {
  return absl::StrCat("<section id=\"", id, "\" aria-labelledby=\"h-", id, "\">\n<h2 id=\"h-", id,
                      "\">", HtmlEscaped(title), "</h2>\n", html, "</section>\n");
}

std::string Paragraph(const std::string& text) {
  return absl::StrCat("<p>", HtmlEscaped(text), "</p>\n");
}

std::string HtmlTable(const std::string& label, const std::vector<TextColumn>& columns,
                      const TextRows& rows) {
  // Sentences keep room.
  constexpr std::size_t kLong = 32;
  const auto cell = [&](const char* tag, std::size_t column, const std::string& text) {
    const char* style = columns[column].is_number ? ""
                        : text.size() > kLong     ? " class=\"t w\""
                                                  : " class=\"t\"";
    return absl::StrCat("<", tag, style, ">", HtmlEscaped(text), "</", tag, ">");
  };
  std::string html =
      absl::StrCat("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"",
                   HtmlEscaped(label), "\"><table>\n<thead><tr>");
  for (std::size_t i = 0; i < columns.size(); ++i) html += cell("th", i, columns[i].title);
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < columns.size(); ++i) html += cell("td", i, row[i]);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string FactList(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& [name, value] : facts) {
    absl::StrAppend(&html, "<div><dt>", HtmlEscaped(name), "</dt><dd>", HtmlEscaped(value),
                    "</dd></div>\n");
  }
  return html + "</dl>\n";
}

std::string BulletList(const std::vector<std::string>& texts) {
  std::string html = "<ul>\n";
  for (const std::string& text : texts) {
    absl::StrAppend(&html, "<li>", HtmlEscaped(text), "</li>\n");
  }
  return html + "</ul>\n";
}

std::string AnatomyBars(const std::vector<RankAnatomy>& anatomies) {
  double longest = 0;
  for (const RankAnatomy& rank : anatomies) {
    double sum = 0;
    for (const PhaseField& phase : SummedPhases()) {
      sum += std::max(0.0, (rank.phases.*phase.get)());
    }
    longest = std::max({longest, rank.step_seconds, sum});
  }
  if (longest <= 0) return "";
  const double height = kBarStep * static_cast<double>(anatomies.size()) + 30;
  std::string svg = absl::StrFormat(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Phases by rank\">"
      "<svg class=\"wide\" viewBox=\"0 0 1000 %.0f\" role=\"img\" aria-label=\"Phases of a step, "
      "one bar a rank\">\n",
      height);
  for (std::size_t row = 0; row < anatomies.size(); ++row) {
    const RankAnatomy& rank = anatomies[row];
    const double y = kBarStep * static_cast<double>(row) + 4;
    absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n",
                          kBarLeft - 10, y + 16, rank.rank->rank());
    double x = kBarLeft;
    for (std::size_t i = 0; i < SummedPhases().size(); ++i) {
      const PhaseField& phase = SummedPhases()[i];
      const double seconds = (rank.phases.*phase.get)();
      if (seconds <= 0) continue;
      const double width = seconds / longest * kBarWidth;
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
                            "fill=\"var(--c%d)\"><title>rank %d, %s: %s</title></rect>\n",
                            x, y, width, kBarHeight, i % kNumColors, rank.rank->rank(), phase.label,
                            TimeText(seconds));
      x += width;
    }
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 8, y + 16,
                          TimeText(rank.step_seconds));
  }
  double x = kBarLeft;
  for (std::size_t i = 0; i < SummedPhases().size(); ++i) {
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\" "
                          "fill=\"var(--c%d)\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                          x, height - 18, i % kNumColors, x + 15, height - 8,
                          SummedPhases()[i].label);
    x += 30 + 7 * static_cast<double>(std::string_view(SummedPhases()[i].label).size());
  }
  return svg + "</svg></div>\n";
}

std::string CounterCurves(const std::vector<AlignedRank>& ranks, const std::string& counter) {
  constexpr double kLeft = 90, kTop = 10, kWidth = 880, kHeight = 150;
  // Points of one line: more are not seen.
  constexpr int kMaxPoints = 400;
  double last_ns = 0, highest = 0;
  std::string unit;
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      for (const auto& one : ranks[i].profile->counters()) {
        const int size = std::min(one.time_ns_size(), one.values_size());
        if (one.name() == counter && size > 0) visit(i, one, size);
      }
    }
  };
  each([&](std::size_t i, const v1::ProfileCounter& one, int size) {
    if (unit.empty()) unit = one.unit();
    last_ns = std::max(last_ns, static_cast<double>(ranks[i].shift_ns + one.time_ns(size - 1)));
    for (const double value : one.values()) highest = std::max(highest, value);
  });
  if (highest <= 0 || last_ns <= 0) return "";
  const std::string top = unit == "bytes"   ? BytesText(highest)
                          : unit == "ratio" ? PercentText(highest)
                                            : absl::StrCat(RateText(highest), " ", unit);
  std::string svg = absl::StrFormat(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s over time\">"
      "<svg class=\"wide\" viewBox=\"0 0 1000 200\" role=\"img\" aria-label=\"%s over time, one "
      "line a rank\">\n<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n<text x=\"%.0f\" "
      "y=\"%.0f\" text-anchor=\"end\">0</text>\n<text x=\"%.0f\" y=\"%.0f\" "
      "text-anchor=\"end\">%s</text>\n",
      HtmlEscaped(counter), HtmlEscaped(counter), kLeft - 8, kTop + 12, HtmlEscaped(top), kLeft - 8,
      kTop + kHeight, kLeft + kWidth, kTop + kHeight + 22, TimeText(last_ns * 1e-9));
  each([&](std::size_t i, const v1::ProfileCounter& one, int size) {
    std::string points;
    const int stride = std::max(1, (size + kMaxPoints - 1) / kMaxPoints);
    for (int k = 0; k < size; k += stride) {
      // The highest of those that one point stands for.
      const auto* first = one.values().data() + k;
      const double value = *std::max_element(first, first + std::min(stride, size - k));
      const double time_ns = static_cast<double>(ranks[i].shift_ns + one.time_ns(k));
      absl::StrAppendFormat(&points, "%.1f,%.1f ", kLeft + time_ns / last_ns * kWidth,
                            kTop + (1 - std::max(0.0, value) / highest) * kHeight);
    }
    absl::StrAppendFormat(&svg,
                          "<polyline fill=\"none\" stroke=\"var(--c%d)\" stroke-width=\"1.5\" "
                          "points=\"%s\"><title>rank %d</title></polyline>\n",
                          i % kNumColors, points, ranks[i].profile->rank());
  });
  return svg + "</svg></div>\n";
}

}  // namespace fsdp::report

#include "worker/profile/report/roofline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/profile/report/report_text.h"

namespace fsdp {
namespace report {
namespace {

// Drawing area.
constexpr double kLeft = 84, kTop = 44, kWidth = 690, kHeight = 360;
constexpr double kRight = kLeft + kWidth, kBottom = kTop + kHeight;
// Between the baselines of two labels.
constexpr double kLineHeight = 15;

constexpr const char* kStyle =
    "<style>.rf{--bg:#fff;--fg:#1c2024;--dim:#667;--grid:#e2e5e9;--roof:#444b55;"
    "--memory:#1769aa;--compute:#2a8a3e;--latency:#c05c00;--balanced:#6b7280;--none:#9333a8;"
    "font-family:system-ui,sans-serif;font-size:12px}"
    "@media (prefers-color-scheme:dark){.rf{--bg:#14181d;--fg:#e6e9ed;--dim:#9aa4b0;"
    "--grid:#2a313a;--roof:#b8c0ca;--memory:#62b0f0;--compute:#66c97b;--latency:#f0a050;"
    "--balanced:#a6aeb8;--none:#cf8ae0}}"
    ".rf text{fill:var(--fg);stroke:var(--bg);stroke-width:3px;paint-order:stroke}"
    ".rf .dim{fill:var(--dim)}</style>\n";

const char* ColorOf(v1::Bound bound) {
  switch (bound) {
    case v1::BOUND_MEMORY:
      return "var(--memory)";
    case v1::BOUND_COMPUTE:
      return "var(--compute)";
    case v1::BOUND_LATENCY:
      return "var(--latency)";
    case v1::BOUND_BALANCED:
      return "var(--balanced)";
    default:
      return "var(--none)";
  }
}

// A logarithmic axis over whole decades or parts of them.
struct LogAxis {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Room around what is drawn.
  void Widen(double factor) {
    low /= factor;
    high *= factor;
  }
  [[nodiscard]] double Fraction(double value) const {
    return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  }
};

struct Point {
  const FamilyRow* family;
  double intensity;
  double rate;
  double share;
};

struct Roofline {
  // Means of the ranks that have them; 0: none has.
  double flops_ceiling = 0;
  double bytes_ceiling = 0;
  std::string dtype;
  std::vector<Point> points;
  // "copy (92.0 % of the memory roof)".
  std::vector<std::string> without_flops;
  LogAxis x;
  LogAxis y;
  [[nodiscard]] double SvgX(double value) const { return kLeft + x.Fraction(value) * kWidth; }
  [[nodiscard]] double SvgY(double value) const { return kBottom - y.Fraction(value) * kHeight; }
};

double MeanOfKnown(const v1::JobProfile& profile, double (v1::RankProfile::*get)() const) {
  double sum = 0;
  int count = 0;
  for (const auto& rank : profile.ranks()) {
    const double value = (rank.*get)();
    if (value <= 0) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

void FitAxes(Roofline* roofline) {
  for (const Point& point : roofline->points) {
    roofline->x.Add(point.intensity);
    roofline->y.Add(point.rate);
  }
  if (roofline->flops_ceiling > 0) roofline->y.Add(roofline->flops_ceiling);
  if (roofline->flops_ceiling > 0 && roofline->bytes_ceiling > 0) {
    roofline->x.Add(roofline->flops_ceiling / roofline->bytes_ceiling);
  }
  roofline->x.Widen(4);
  roofline->y.Widen(2.5);
}

Roofline Measure(const v1::JobProfile& profile, const KernelReport& report) {
  Roofline roofline;
  roofline.flops_ceiling = MeanOfKnown(profile, &v1::RankProfile::flops_ceiling);
  roofline.bytes_ceiling = MeanOfKnown(profile, &v1::RankProfile::bytes_ceiling);
  if (profile.ranks_size() > 0) roofline.dtype = profile.ranks(0).dtype();
  double seconds = 0;
  for (const FamilyRow& family : report.families) seconds += family.seconds;
  for (const FamilyRow& family : report.families) {
    if (family.bound == v1::BOUND_COMMUNICATION || family.seconds <= 0) continue;
    if (family.flops > 0 && family.bytes > 0) {
      roofline.points.push_back({&family, family.flops / family.bytes,
                                 family.flops / family.seconds, family.seconds / seconds});
    } else if (family.bytes > 0) {
      const double rate = family.bytes / family.seconds;
      roofline.without_flops.push_back(
          roofline.bytes_ceiling > 0
              ? absl::StrCat(CleanText(family.family), " (",
                             PercentText(rate / roofline.bytes_ceiling), " of the memory roof)")
              : absl::StrCat(CleanText(family.family), " (", RateText(rate), "B/s)"));
    }
  }
  if (!roofline.points.empty()) FitAxes(&roofline);
  return roofline;
}

std::string Line(double x1, double y1, double x2, double y2, const char* color, double width) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
      "stroke-width=\"%.1f\"/>\n",
      x1, y1, x2, y2, color, width);
}

// `text` is escaped here.
std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const char* more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, more, HtmlEscaped(text));
}

// "0.01", "10", "1 T": of a power of ten.
std::string DecadeText(double value) {
  static constexpr std::array<const char*, 7> kPrefixes = {"", " k", " M", " G", " T", " P", " E"};
  std::size_t prefix = 0;
  for (; value > 500 && prefix + 1 < kPrefixes.size(); ++prefix) value /= 1000;
  return absl::StrFormat("%.3g%s", value, kPrefixes[prefix]);
}

std::string Axes(const Roofline& roofline) {
  std::string svg;
  const auto decades = [](const LogAxis& axis) {
    std::vector<double> values;
    for (double power = std::ceil(std::log10(axis.low)); power <= std::log10(axis.high); ++power) {
      values.push_back(std::pow(10, power));
    }
    return values;
  };
  for (const double value : decades(roofline.x)) {
    const double x = roofline.SvgX(value);
    svg += Line(x, kTop, x, kBottom, "var(--grid)", 1);
    svg += Text(x, kBottom + 18, "middle", DecadeText(value));
  }
  for (const double value : decades(roofline.y)) {
    const double y = roofline.SvgY(value);
    svg += Line(kLeft, y, kRight, y, "var(--grid)", 1);
    svg += Text(kLeft - 8, y + 4, "end", DecadeText(value));
  }
  svg += Text(kLeft + kWidth / 2, kBottom + 38, "middle", "FLOPs per byte of memory traffic");
  const double middle = kTop + kHeight / 2;
  svg += Text(18, middle, "middle", "FLOP/s of one device",
              absl::StrFormat(" transform=\"rotate(-90 18 %.1f)\"", middle).c_str());
  return svg;
}

std::string Roofs(const Roofline& roofline) {
  std::string svg;
  const double low = roofline.x.low, high = roofline.x.high;
  const double flops = roofline.flops_ceiling, bytes = roofline.bytes_ceiling;
  const double ridge = flops > 0 && bytes > 0 ? flops / bytes : 0;
  if (bytes > 0) {
    // From where it enters the picture to where it meets the other roof or leaves.
    const double from = std::max(low, roofline.y.low / bytes);
    const double to = ridge > 0 ? ridge : std::min(high, roofline.y.high / bytes);
    if (from < to) {
      svg += Line(roofline.SvgX(from), roofline.SvgY(from * bytes), roofline.SvgX(to),
                  roofline.SvgY(to * bytes), "var(--roof)", 2);
      const double at = std::sqrt(from * to);
      svg += Text(roofline.SvgX(at) - 8, roofline.SvgY(at * bytes) - 8, "end",
                  absl::StrCat("memory ", RateText(bytes), "B/s"));
    }
  }
  if (flops > 0) {
    const double from = ridge > 0 ? ridge : low;
    svg += Line(roofline.SvgX(from), roofline.SvgY(flops), kRight, roofline.SvgY(flops),
                "var(--roof)", 2);
    svg += Text(kRight - 4, roofline.SvgY(flops) - 8, "end",
                absl::StrCat("matmul ", roofline.dtype, " ", RateText(flops), "FLOP/s"));
  }
  if (ridge > 0) {
    const double x = roofline.SvgX(ridge);
    svg += absl::StrFormat(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"var(--dim)\" "
        "stroke-dasharray=\"3 4\"/>\n",
        x, roofline.SvgY(flops), x, kBottom);
    svg +=
        Text(x + 4, kBottom - 6, "start", absl::StrFormat("ridge %.3g", ridge), " class=\"dim\"");
  }
  return svg;
}

std::string Points(const Roofline& roofline) {
  struct Label {
    double x, y;
    const char* anchor;
    std::string text;
  };
  std::string svg;
  std::vector<Label> labels;
  for (const Point& point : roofline.points) {
    const double x = roofline.SvgX(point.intensity), y = roofline.SvgY(point.rate);
    // The area tells the share of time.
    const double radius = std::clamp(34 * std::sqrt(point.share), 3.0, 34.0);
    absl::StrAppendFormat(
        &svg,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" "
        "fill-opacity=\"0.45\" stroke=\"%s\"><title>%s</title></circle>\n",
        x, y, radius, ColorOf(point.family->bound), ColorOf(point.family->bound),
        HtmlEscaped(absl::StrCat(point.family->family, ": ", RateText(point.rate), "FLOP/s, ",
                                 absl::StrFormat("%.3g", point.intensity), " FLOPs per byte, ",
                                 BoundText(point.family->bound))));
    const bool on_left = x > kLeft + 0.72 * kWidth;
    labels.push_back(
        {on_left ? x - radius - 5 : x + radius + 5, y + 4, on_left ? "end" : "start",
         absl::StrCat(Shortened(point.family->family, 28), " ", PercentText(point.share))});
  }
  // Labels that would lie on each other move down.
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.y < b.y; });
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i > 0) labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLineHeight);
    svg += Text(labels[i].x, labels[i].y, labels[i].anchor, labels[i].text);
  }
  return svg;
}

std::string Legend() {
  std::string svg;
  double x = kLeft;
  for (const v1::Bound bound : {v1::BOUND_MEMORY, v1::BOUND_COMPUTE, v1::BOUND_LATENCY,
                                v1::BOUND_BALANCED, v1::BOUND_UNSPECIFIED}) {
    const std::string name =
        bound == v1::BOUND_UNSPECIFIED ? "no verdict" : BoundText(bound) + "-bound";
    absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x + 5,
                          kBottom + 58, ColorOf(bound));
    svg += Text(x + 15, kBottom + 62, "start", bound == v1::BOUND_BALANCED ? "balanced" : name);
    x += 118;
  }
  return svg + Text(kRight, kBottom + 62, "end", "area: share of time", " class=\"dim\"");
}

// What the picture lacks.
std::string Notes(const Roofline& roofline) {
  std::vector<std::string> notes;
  if (roofline.flops_ceiling <= 0 && roofline.bytes_ceiling <= 0) {
    notes.emplace_back("No roof is drawn: neither was measured.");
  } else if (roofline.flops_ceiling <= 0) {
    notes.emplace_back("No compute roof is drawn: it was not measured.");
  } else if (roofline.bytes_ceiling <= 0) {
    notes.emplace_back("No memory roof is drawn: it was not measured.");
  }
  if (!roofline.without_flops.empty()) {
    notes.push_back(absl::StrCat("Without FLOPs: ", absl::StrJoin(roofline.without_flops, ", ")));
  }
  std::string svg;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    svg += Text(kLeft, kBottom + 84 + kLineHeight * static_cast<double>(i), "start",
                Shortened(notes[i], 110), " class=\"dim\"");
  }
  return svg;
}

}  // namespace
}  // namespace report

std::string RooflineSvg(const v1::JobProfile& profile) {
  return RooflineSvg(profile, BuildKernelReport(profile));
}

std::string RooflineSvg(const v1::JobProfile& profile, const KernelReport& kernels) {
  const report::Roofline roofline = report::Measure(profile, kernels);
  std::string svg = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rf\" width=\"800\" height=\"520\" "
      "viewBox=\"0 0 800 520\" role=\"img\" aria-label=\"Roofline of kernel families\">\n",
      report::kStyle, "<rect width=\"800\" height=\"520\" fill=\"var(--bg)\"/>\n",
      report::Text(400, 26, "middle",
                   absl::StrCat("Roofline of ", report::Shortened(profile.job(), 70)),
                   " font-size=\"15\""));
  if (roofline.points.empty()) {
    absl::StrAppend(&svg, report::Text(400, 200, "middle",
                                       "No family of this profile has FLOPs, bytes and time."));
  } else {
    absl::StrAppend(&svg, report::Axes(roofline), report::Roofs(roofline), report::Points(roofline),
                    report::Legend());
  }
  absl::StrAppend(&svg, report::Notes(roofline), "</svg>\n");
  return svg;
}

}  // namespace fsdp

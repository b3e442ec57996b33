#include "coordinator/web/page_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"

namespace fsdp::coordinator {
namespace {

// The drawing area's own units.
constexpr double kWidth = 1000, kHeight = 300;

// A scale whose ends and lines are round numbers.
struct Scale {
  double low = 0;
  double high = 1;
  double step = 1;
  [[nodiscard]] double Fraction(double value) const {
    return std::clamp((value - low) / (high - low), 0.0, 1.0);
  }
};

Scale RoundScale(double low, double high) {
  if (!(high > low)) {
    const double air = std::max(std::abs(low) * 0.05, 1e-6);
    low -= air;
    high += air;
  }
  const double rough = (high - low) / 4;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double unit = rough / power;
  Scale scale;
  scale.step = power * (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 5 ? 5 : 10);
  scale.low = std::floor(low / scale.step) * scale.step;
  scale.high = std::ceil(high / scale.step) * scale.step;
  return scale;
}

struct Frame {
  std::int64_t first_step = 0;
  std::int64_t last_step = 1;
  Scale y;
  [[nodiscard]] double X(double step) const {
    const auto span = static_cast<double>(std::max<std::int64_t>(1, last_step - first_step));
    return (step - static_cast<double>(first_step)) / span * kWidth;
  }
  [[nodiscard]] double Y(double value) const { return (1 - y.Fraction(value)) * kHeight; }
};

Frame FrameOf(const HistoryView& view) {
  Frame frame;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  frame.first_step = std::numeric_limits<std::int64_t>::max();
  frame.last_step = 0;
  for (const CurveSeries* series : {&view.loss, &view.validation_loss}) {
    for (const CurveSeries::Point& point : series->points()) {
      low = std::min(low, point.low);
      high = std::max(high, point.high);
      frame.first_step = std::min(frame.first_step, point.first_step);
      frame.last_step = std::max(frame.last_step, point.last_step);
    }
  }
  frame.y = RoundScale(low, high);
  return frame;
}

double MiddleOf(const CurveSeries::Point& point) {
  return (static_cast<double>(point.first_step) + static_cast<double>(point.last_step)) / 2;
}

std::string LinePoints(const CurveSeries& series, const Frame& frame) {
  std::string points;
  for (const CurveSeries::Point& point : series.points()) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ", frame.X(MiddleOf(point)), frame.Y(point.mean()));
  }
  return points;
}

// Along the highs, and back along the lows.
std::string BandPoints(const CurveSeries& series, const Frame& frame) {
  std::string points;
  const auto& all = series.points();
  for (const auto& point : all) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ", frame.X(MiddleOf(point)), frame.Y(point.high));
  }
  for (auto point = all.rbegin(); point != all.rend(); ++point) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ", frame.X(MiddleOf(*point)), frame.Y(point->low));
  }
  return points;
}

std::string AxisNumber(double value, double step) {
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step)), 0.0, 8.0));
  return absl::StrFormat("%.*f", decimals, value + 0.0);
}

Html Plot(const HistoryView& view, const Frame& frame, const std::string& label) {
  Html svg;
  svg.Markup("<svg viewBox=\"0 0 1000 300\" preserveAspectRatio=\"none\" role=\"img\" ");
  svg.Markup("aria-label=\"").Text(label).Markup("\">\n");
  const int lines = static_cast<int>(std::lround((frame.y.high - frame.y.low) / frame.y.step));
  for (int i = 0; i <= lines; ++i) {
    const std::string y = absl::StrFormat("%.1f", kHeight * i / lines);
    svg.Markup("<line class=\"grid\" x1=\"0\" x2=\"1000\" y1=\"").Text(y).Markup("\" y2=\"");
    svg.Text(y).Markup("\"/>\n");
  }
  svg.Markup("<polygon class=\"band\" points=\"").Text(BandPoints(view.loss, frame));
  svg.Markup("\"/>\n<polyline class=\"loss\" points=\"").Text(LinePoints(view.loss, frame));
  svg.Markup("\"/>\n");
  if (!view.validation_loss.points().empty()) {
    svg.Markup("<polyline class=\"validation\" points=\"");
    svg.Text(LinePoints(view.validation_loss, frame)).Markup("\"/>\n");
  }
  return svg.Markup("</svg>");
}

Html Axes(const Frame& frame, const Html& plot) {
  Html html;
  html.Markup("<div class=\"plot\">\n<div class=\"y\" aria-hidden=\"true\">");
  const int lines = static_cast<int>(std::lround((frame.y.high - frame.y.low) / frame.y.step));
  for (int i = 0; i <= lines; ++i) {
    const double value = frame.y.high - frame.y.step * i;
    html.Markup("<span>").Text(AxisNumber(value, frame.y.step)).Markup("</span>");
  }
  html.Markup("</div>\n").Add(plot).Markup("\n<div class=\"x\" aria-hidden=\"true\"><span>step ");
  html.Text(CountText(frame.first_step)).Markup("</span><span>");
  html.Text(CountText(frame.last_step)).Markup("</span></div>\n</div>\n");
  return html;
}

std::string LossSentence(const CurveSeries& series, const std::string& name) {
  if (series.points().empty()) return "";
  const CurveSeries::Point& last = series.points().back();
  double lowest = last.low;
  for (const auto& point : series.points()) lowest = std::min(lowest, point.low);
  return absl::StrCat(name, " ", LossText(last.mean()), " at step ", CountText(last.last_step),
                      ", lowest ", LossText(lowest), ". ");
}

}  // namespace

Html LossCurve(const HistoryView& view) {
  std::string sentence = absl::StrCat(LossSentence(view.loss, "Loss"),
                                      LossSentence(view.validation_loss, "Validation loss"));
  if (view.loss.num_not_finite() > 0) {
    absl::StrAppend(&sentence, CountText(view.loss.num_not_finite()),
                    " steps had a loss that is not a number. ");
  }
  if (view.metrics_left) {
    absl::StrAppend(&sentence, "The first ", CountText(view.metrics_read),
                    " steps; more are being read. ");
  }
  Html html;
  if (sentence.empty()) return html.Markup("<p class=\"none\">No step has finished.</p>\n");
  if (view.loss.points().size() >= 2) {
    const Frame frame = FrameOf(view);
    html.Add(Axes(frame, Plot(view, frame, "Loss by step. " + sentence)));
  }
  html.Markup("<p class=\"legend\"><span class=\"key loss\"></span>loss");
  if (!view.validation_loss.points().empty()) {
    html.Markup(" <span class=\"key validation\"></span>validation loss");
  }
  return html.Markup("</p>\n<p>").Text(sentence).Markup("</p>\n");
}

Html AnatomyBar(const v1::StepPhases& phases) {
  // The style sheet has a colour for each.
  constexpr std::size_t kNumColors = 9;
  const auto parts = StepParts(phases);
  double total = 0;
  for (const auto& [seconds, name] : parts) total += std::max(0.0, seconds);
  Html html;
  if (!(total > 0) || !std::isfinite(total)) return html;
  Html bar, legend;
  double x = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [seconds, name] = parts[i];
    if (seconds <= 0) continue;
    const double width = seconds / total * kWidth;
    const std::string color = absl::StrCat("c", i % kNumColors);
    bar.Markup("<rect class=\"").Text(color).Markup("\" y=\"0\" height=\"24\" x=\"");
    bar.Text(absl::StrFormat("%.2f", x)).Markup("\" width=\"");
    bar.Text(absl::StrFormat("%.2f", width)).Markup("\"/>");
    legend.Markup("<li><span class=\"key ").Text(color).Markup("\"></span>").Text(name);
    legend.Markup(" <span class=\"value\">").Text(StepSecondsText(seconds)).Markup("</span> ");
    legend.Text(absl::StrFormat("%.0f %%", seconds / total * 100)).Markup("</li>\n");
    x += width;
  }
  html.Markup("<svg class=\"bar\" viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" ");
  html.Markup("role=\"img\" aria-label=\"Phases of a step; the figures follow\">").Add(bar);
  html.Markup("</svg>\n<ul class=\"phases\">\n").Add(legend).Markup("</ul>\n");
  return html;
}

}  // namespace fsdp::coordinator

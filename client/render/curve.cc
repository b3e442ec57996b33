#include "client/render/curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/markup.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] double Fraction(double value) const {
    return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0.5;
  }
};

struct Frame {
  Range x;
  Range y;
  std::size_t num_points = 0;
};

bool IsFinite(const CurvePoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

Frame FrameOf(const std::vector<CurveSeries>& series, const CurveOptions& options) {
  Frame frame;
  for (const auto& one : series) {
    for (const auto& point : one.points) {
      if (!IsFinite(point)) continue;
      frame.x.Add(point.x);
      frame.y.Add(point.y);
      ++frame.num_points;
    }
  }
  for (const auto& level : options.levels) {
    if (std::isfinite(level.y)) frame.y.Add(level.y);
  }
  // A little air, so that nothing lies on the frame.
  const double air = frame.y.high > frame.y.low ? (frame.y.high - frame.y.low) * 0.04 : 0.5;
  frame.y.low -= air;
  frame.y.high += air;
  return frame;
}

// A grid of 2 x 4 dots a character.
class BrailleCanvas {
 public:
  BrailleCanvas(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<std::size_t>(columns * rows)) {}

  [[nodiscard]] int width() const { return columns_ * 2; }
  [[nodiscard]] int height() const { return rows_ * 4; }

  void Dot(int x, int y, int series) {
    static constexpr std::array<std::array<std::uint8_t, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    Cell& cell = cells_[Index(x / 2, y / 4)];
    cell.bits |= kBits[static_cast<std::size_t>(y % 4)][static_cast<std::size_t>(x % 2)];
    cell.series = std::max(cell.series, series);
  }

  void Line(int x0, int y0, int x1, int y1, int series) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      Dot(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))), series);
    }
  }

  [[nodiscard]] std::string Row(int row, const Style& style) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[Index(column, row)];
      if (cell.bits == 0) {
        text += ' ';
        continue;
      }
      const std::string glyph = Glyph(cell.bits);
      text += cell.series == 0   ? style.Dim(glyph)
              : cell.series == 1 ? style.Cyan(glyph)
                                 : style.Yellow(glyph);
    }
    return text;
  }

 private:
  struct Cell {
    std::uint8_t bits = 0;
    // 0: a level, then the series in order.
    int series = 0;
  };
  [[nodiscard]] std::size_t Index(int column, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) +
           static_cast<std::size_t>(column);
  }
  // U+2800 + bits in UTF-8.
  static std::string Glyph(std::uint8_t bits) {
    const int code = 0x2800 + bits;
    return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
            static_cast<char>(0x80 | (code & 0x3f))};
  }
  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

void DrawSeries(const CurveSeries& series, const Frame& frame, int index, BrailleCanvas* canvas) {
  int last_x = -1;
  int last_y = -1;
  for (const auto& point : series.points) {
    if (!IsFinite(point)) continue;
    const int x = static_cast<int>(std::lround(frame.x.Fraction(point.x) * (canvas->width() - 1)));
    const int y =
        static_cast<int>(std::lround((1 - frame.y.Fraction(point.y)) * (canvas->height() - 1)));
    if (last_x < 0) {
      canvas->Dot(x, y, index);
    } else {
      canvas->Line(last_x, last_y, x, y, index);
    }
    last_x = x;
    last_y = y;
  }
}

std::string AxisNumber(double value) {
  return std::abs(value) >= 1000 ? ShortNumber(value) : absl::StrFormat("%.3g", value);
}

// Drawing area of the SVG.
constexpr double kLeft = 70, kTop = 40, kWidth = 700, kHeight = 350;
constexpr std::array<const char*, 4> kColors = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"};

double SvgX(const Frame& frame, double x) { return kLeft + frame.x.Fraction(x) * kWidth; }
double SvgY(const Frame& frame, double y) { return kTop + (1 - frame.y.Fraction(y)) * kHeight; }

// Round numbers (1, 2 or 5 times a power of ten apart) inside low..high, four to ten of them.
std::vector<double> Ticks(double low, double high) {
  std::vector<double> ticks;
  const double rough = (high - low) / 5;
  if (!(rough > 0) || !std::isfinite(rough)) return ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double unit = rough / power;
  const double step = power * (unit < 1.5 ? 1 : unit < 3.5 ? 2 : unit < 7.5 ? 5 : 10);
  for (double k = std::ceil(low / step); k * step <= high; ++k) ticks.push_back(k * step);
  return ticks;
}

std::string SvgAxes(const Frame& frame, const CurveOptions& options) {
  std::string svg;
  for (const double y : Ticks(frame.y.low, frame.y.high)) {
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                          "stroke=\"#dddddd\"/>\n<text x=\"%.1f\" y=\"%.1f\" "
                          "text-anchor=\"end\">%s</text>\n",
                          kLeft, SvgY(frame, y), kLeft + kWidth, SvgY(frame, y), kLeft - 8,
                          SvgY(frame, y) + 4, AxisNumber(y));
  }
  for (const double x : Ticks(frame.x.low, frame.x.high)) {
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                          SvgX(frame, x), kTop + kHeight + 20, AxisNumber(x));
  }
  absl::StrAppendFormat(&svg,
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n"
                        "<text x=\"16\" y=\"%.1f\" transform=\"rotate(-90 16 %.1f)\" "
                        "text-anchor=\"middle\">%s</text>\n",
                        kLeft + kWidth / 2, kTop + kHeight + 42, HtmlEscaped(options.x_label),
                        kTop + kHeight / 2, kTop + kHeight / 2, HtmlEscaped(options.y_label));
  return svg;
}

std::string SvgSeries(const CurveSeries& series, const Frame& frame, std::size_t index) {
  const char* color = kColors[index % kColors.size()];
  std::string points;
  std::string dots;
  for (const auto& point : series.points) {
    if (!IsFinite(point)) continue;
    absl::StrAppendFormat(&points, "%.1f,%.1f ", SvgX(frame, point.x), SvgY(frame, point.y));
    if (series.points.size() <= 40) {
      absl::StrAppendFormat(&dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                            SvgX(frame, point.x), SvgY(frame, point.y), color);
    }
  }
  const double legend_y = kTop + 16 + 18 * static_cast<double>(index);
  std::string svg = absl::StrFormat(
      "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"%s\"/>\n", color,
      points);
  absl::StrAppend(&svg, dots);
  absl::StrAppendFormat(&svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                        "stroke-width=\"3\"/>\n<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                        kLeft + kWidth - 170, legend_y, kLeft + kWidth - 150, legend_y, color,
                        kLeft + kWidth - 144, legend_y + 4, HtmlEscaped(series.label));
  return svg;
}

}  // namespace

std::string TerminalCurve(const std::vector<CurveSeries>& series, const CurveOptions& options,
                          int columns, int rows, const Style& style) {
  const Frame frame = FrameOf(series, options);
  if (frame.num_points < 2) return "";
  static constexpr int kAxisColumns = 9;
  const int plot_columns = std::max(columns - kAxisColumns - 1, 10);
  BrailleCanvas canvas(plot_columns, std::max(rows, 3));
  for (const auto& level : options.levels) {
    if (!std::isfinite(level.y)) continue;
    const int y =
        static_cast<int>(std::lround((1 - frame.y.Fraction(level.y)) * (canvas.height() - 1)));
    for (int x = 0; x < canvas.width(); x += 4) canvas.Dot(x, y, 0);
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    DrawSeries(series[i], frame, static_cast<int>(i) + 1, &canvas);
  }
  std::string text = options.title.empty() ? "" : absl::StrCat(options.title, "\n");
  const int num_rows = canvas.height() / 4;
  for (int row = 0; row < num_rows; ++row) {
    std::string label;
    if (row == 0 || row == num_rows - 1 || row == num_rows / 2) {
      const double fraction = 1 - (row + 0.5) / num_rows;
      label = absl::StrFormat("%.3f", frame.y.low + fraction * (frame.y.high - frame.y.low));
    }
    std::string line = absl::StrFormat("%*s │%s", kAxisColumns - 2, label, canvas.Row(row, style));
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  std::string rule;
  for (int i = 0; i < plot_columns; ++i) rule += "─";
  absl::StrAppend(&text, std::string(kAxisColumns - 1, ' '), "└", rule, "\n");
  const std::string first = absl::StrCat(options.x_label, " ", AxisNumber(frame.x.low));
  const std::string last = AxisNumber(frame.x.high);
  const int gap = std::max(1, plot_columns - static_cast<int>(first.size() + last.size()));
  absl::StrAppend(&text, std::string(kAxisColumns, ' '), first,
                  std::string(static_cast<std::size_t>(gap), ' '), last, "\n");
  std::string legend;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const std::string mark = i == 0 ? style.Cyan("⠒") : style.Yellow("⠒");
    absl::StrAppend(&legend, legend.empty() ? "" : "   ", mark, " ", series[i].label);
  }
  for (const auto& level : options.levels) {
    absl::StrAppend(&legend, "   ", style.Dim("⠂"), " ", level.label, " ",
                    absl::StrFormat("%.3f", level.y));
  }
  absl::StrAppend(&text, std::string(kAxisColumns, ' '), legend, "\n");
  return text;
}

std::string SvgCurve(const std::vector<CurveSeries>& series, const CurveOptions& options) {
  const Frame frame = FrameOf(series, options);
  if (frame.num_points < 2) return "";
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"450\" "
      "viewBox=\"0 0 800 450\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"800\" height=\"450\" fill=\"white\"/>\n"
      "<text x=\"400\" y=\"24\" font-size=\"15\" text-anchor=\"middle\">%s</text>\n",
      HtmlEscaped(options.title));
  absl::StrAppend(&svg, SvgAxes(frame, options));
  for (const auto& level : options.levels) {
    if (!std::isfinite(level.y)) continue;
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                          "stroke=\"#888888\" stroke-dasharray=\"5 4\"/>\n"
                          "<text x=\"%.1f\" y=\"%.1f\" fill=\"#555555\" "
                          "text-anchor=\"end\">%s %.3f</text>\n",
                          kLeft, SvgY(frame, level.y), kLeft + kWidth, SvgY(frame, level.y),
                          kLeft + kWidth - 6, SvgY(frame, level.y) - 4, HtmlEscaped(level.label),
                          level.y);
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    absl::StrAppend(&svg, SvgSeries(series[i], frame, i));
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace fsdp

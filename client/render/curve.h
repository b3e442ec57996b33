#ifndef FSDPCTL_CLIENT_RENDER_CURVE_H_
#define FSDPCTL_CLIENT_RENDER_CURVE_H_

// Loss curves: braille dots on a terminal, SVG in a file. Thread-safe (no state).

#include <string>
#include <vector>

#include "client/render/style.h"

namespace fsdp {

struct CurvePoint {
  double x = 0;
  double y = 0;
};

struct CurveSeries {
  std::string label;
  std::vector<CurvePoint> points;
};

// A horizontal line for comparison.
struct CurveLevel {
  std::string label;
  double y = 0;
};

struct CurveOptions {
  std::string title;
  std::string x_label = "step";
  std::string y_label = "loss";
  std::vector<CurveLevel> levels;
};

// Points that are not finite are left out. The axes span everything that is drawn, levels included.
// Both are empty when fewer than two points remain.

// `columns` x `rows` characters with axes; the first series as dots, the second in the second
// colour.
std::string TerminalCurve(const std::vector<CurveSeries>& series, const CurveOptions& options,
                          int columns, int rows, const Style& style);

// A complete SVG document, 800 x 450.
std::string SvgCurve(const std::vector<CurveSeries>& series, const CurveOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_CURVE_H_

#pragma once
#include <limits>
#include <map>

#include "train/compare/table.h"
#include "train/report/svg.h"

namespace ringtape {

using EpochCurve = std::map<int64_t, Spread>;  // by epoch

// A value of the metrics of a split, times `scale`, over the seeds.
EpochCurve course(const ComparedStrategy& strategy, const std::string& split, std::optional<double> Metrics::*member,
                  double scale);

// A curve of a panel, with a band of one standard deviation to either side. A curve of a single epoch is a dot.
struct Curve {
  size_t series = 0;       // index of the style in Svg
  EpochCurve line, tests;  // `tests`: dots
};

// A range of values.
struct Extent {
  double low, high;
};

// Curves by epoch in a rectangle, with scales to the left and below.
class Panel {
 public:
  Panel(double left, double top, double width, double height)
      : left_(left), top_(top), width_(width), bottom_(top + height) {}

  void add(Curve curve);
  Extent extent() const { return {low_, high_}; }  // range of the curves; low > high if there are none
  void include(const Extent& extent);              // extends the scale
  void draw(Svg& svg, const std::string& title) const;

 private:
  Extent scale() const;  // the extent with a margin
  double x(double epoch) const;
  double y(double value) const;
  void draw_curve(Svg& svg, const Curve& curve) const;

  double left_, top_, width_, bottom_;  // pixels
  std::vector<Curve> curves_;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
  int64_t last_ = 1;  // the last epoch
};

double legend_width(const std::string& label);
// Draws an entry of a legend at `left`.
void legend(Svg& svg, double left, double baseline, size_t series, const std::string& label);

}  // namespace ringtape

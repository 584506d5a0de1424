#pragma once
#include <limits>
#include <map>

#include "train/compare/table.h"
#include "train/report/svg.h"

namespace ringtape {

using Course = std::map<int64_t, Spread>;  // by epoch

// A figure of the metrics of that split, times `scale`, over the seeds.
Course course(const ComparedStrategy& strategy, const std::string& split, std::optional<double> Metrics::*member,
              double scale);

// A curve of a panel, with one standard deviation to either side. One of a single epoch is a dot.
struct Curve {
  size_t series = 0;   // that Svg tells apart
  Course line, tests;  // `tests`: dots beside it
};

// Of values.
struct Extent {
  double low, high;
};

// Curves by epoch, in a rectangle with its scales to the left and below.
class Panel {
 public:
  Panel(double left, double top, double width, double height)
      : left_(left), top_(top), width_(width), bottom_(top + height) {}

  void add(Curve curve);
  Extent extent() const { return {low_, high_}; }  // of the curves; low above high if there are none
  void include(const Extent& extent);              // in the scale
  void draw(Svg& svg, const std::string& title) const;

 private:
  Extent scale() const;  // the extent, and a margin
  double x(double epoch) const;
  double y(double value) const;
  void draw_curve(Svg& svg, const Curve& curve) const;

  double left_, top_, width_, bottom_;  // pixels
  std::vector<Curve> curves_;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
  int64_t last_ = 1;  // epoch
};

// A line of a legend, from `left` on: where the next one may begin.
double legend(Svg& svg, double left, double baseline, size_t series, const std::string& label);

}  // namespace ringtape

#include "train/compare/panel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ringtape {

// Minimum distance between dots of tests, in pixels: equal results would otherwise hide each other.
constexpr double kDots = 9;

EpochCurve course(const ComparedStrategy& strategy, const std::string& split, std::optional<double> Metrics::*member,
                  double scale) {
  std::map<int64_t, std::vector<double>> values;
  for (const FinishedRun& run : strategy.runs) {
    std::map<int64_t, double> last;  // of each epoch, which may have several validations
    for (const Metrics& m : run.metrics)
      if (m.split == split && m.*member) last[m.epoch] = *(m.*member) * scale;
    for (const auto& [epoch, value] : last) values[epoch].push_back(value);
  }
  EpochCurve out;
  for (const auto& [epoch, all] : values) out[epoch] = spread_of(all);
  return out;
}

void Panel::add(Curve curve) {
  for (const EpochCurve* c : {&curve.line, &curve.tests})
    for (const auto& [epoch, s] : *c) {
      last_ = std::max(last_, epoch);
      if (std::isfinite(s.mean)) include({s.mean - s.deviation.value_or(0), s.mean + s.deviation.value_or(0)});
    }
  curves_.push_back(std::move(curve));
}

void Panel::include(const Extent& extent) { low_ = std::min(low_, extent.low), high_ = std::max(high_, extent.high); }

double Panel::x(double epoch) const {
  return left_ + (last_ > 1 ? width_ * (epoch - 1) / double(last_ - 1) : width_ / 2);
}

Extent Panel::scale() const {
  if (!(low_ <= high_)) return {0, 1};
  const double margin = high_ > low_ ? 0.05 * (high_ - low_) : 1;
  return {low_ - margin, high_ + margin};
}

double Panel::y(double value) const {
  const auto [low, high] = scale();
  return bottom_ - (bottom_ - top_) * (value - low) / (high - low);
}

void Panel::draw(Svg& svg, const std::string& title) const {
  svg.text(left_, top_ - 12, title);
  const auto [low, high] = scale();
  for (const double value : ticks(low, high, 7)) {
    svg.line(left_, y(value), left_ + width_, y(value), "grid");
    svg.text(left_ - 6, y(value) + 4, fmt::format("{:g}", value), "soft", Svg::Anchor::end);
  }
  for (const double epoch : ticks(1, double(last_), 10))
    if (epoch == std::floor(epoch))
      svg.text(x(epoch), bottom_ + 18, fmt::format("{:g}", epoch), "soft", Svg::Anchor::middle);
  svg.line(left_, bottom_, left_ + width_, bottom_, "axis");
  svg.text(left_ + width_, bottom_ + 32, "epoch", "soft", Svg::Anchor::end);
  for (const Curve& curve : curves_) draw_curve(svg, curve);
}

void Panel::draw_curve(Svg& svg, const Curve& curve) const {
  Svg::Points line, upper, lower;
  for (const auto& [epoch, s] : curve.line) {
    if (!std::isfinite(s.mean)) continue;
    const double at = x(double(epoch)), deviation = s.deviation.value_or(0);
    line.emplace_back(at, y(s.mean)), upper.emplace_back(at, y(s.mean + deviation)),
        lower.emplace_back(at, y(s.mean - deviation));
  }
  upper.insert(upper.end(), lower.rbegin(), lower.rend());
  svg.area(upper, Svg::spread(curve.series));
  if (line.size() == 1) svg.dot(line[0].first, line[0].second, Svg::mark(curve.series));
  else svg.curve(line, Svg::series(curve.series));
  for (const auto& [epoch, s] : curve.tests)
    if (std::isfinite(s.mean))
      svg.dot(x(double(epoch)) + kDots * double(curve.series + 1), y(s.mean), Svg::mark(curve.series),
              fmt::format("test: {:.4g}", s.mean));
}

double legend_width(const std::string& label) { return 70 + 6.6 * double(label.size()); }

void legend(Svg& svg, double left, double baseline, size_t series, const std::string& label) {
  svg.line(left, baseline - 4, left + 34, baseline - 4, Svg::series(series));
  svg.text(left + 42, baseline, label);
}

}  // namespace ringtape

#include "train/compare/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "train/svg.h"

namespace ringtape {
namespace {

using Member = std::optional<double> Metrics::*;
using Course = std::map<int64_t, Spread>;  // by epoch

// Pixels.
constexpr double kWidth = 960, kHeight = 420, kTop = 64, kBottom = 340, kLegend = 392;
constexpr double kPanel = 370, kFirst = 64, kSecond = 540, kDots = 9;  // from one dot to the next

Course course(const ComparedStrategy& strategy, const std::string& split, Member member, double scale) {
  std::map<int64_t, std::vector<double>> values;
  for (const FinishedRun& run : strategy.runs)
    for (const Metrics& m : run.metrics)
      if (m.split == split && m.*member) values[m.epoch].push_back(*(m.*member) * scale);
  Course out;
  for (const auto& [epoch, all] : values) out[epoch] = spread_of(all);
  return out;
}

class Panel {
 public:
  Panel(Svg& svg, double left, const std::vector<ComparedStrategy>& strategies, const std::string& split, Member member, double scale)
      : svg_(svg), left_(left) {
    for (const ComparedStrategy& s : strategies) {
      curves_.push_back(course(s, split, member, scale));
      tests_.push_back(course(s, "test", member, scale));
      for (const Course& c : {curves_.back(), tests_.back()})
        for (const auto& [epoch, spread] : c) take(epoch, spread);
    }
    if (!(high_ > low_)) low_ -= 1, high_ += 1;
    const double margin = 0.05 * (high_ - low_);
    low_ -= margin, high_ += margin;
  }

  void draw(const std::string& title) {
    svg_.text(left_, kTop - 12, title);
    for (const double value : ticks(low_, high_, 7)) {
      svg_.line(left_, y(value), left_ + kPanel, y(value), "grid");
      svg_.text(left_ - 6, y(value) + 4, fmt::format("{:g}", value), "soft", Svg::Anchor::end);
    }
    for (const double epoch : ticks(1, double(last_), 10))
      if (epoch == std::floor(epoch)) svg_.text(x(epoch), kBottom + 18, fmt::format("{:g}", epoch), "soft", Svg::Anchor::middle);
    svg_.line(left_, kBottom, left_ + kPanel, kBottom, "axis");
    svg_.text(left_ + kPanel, kBottom + 32, "epoch", "soft", Svg::Anchor::end);
    for (size_t i = 0; i < curves_.size(); ++i) draw_course(i);
  }

 private:
  void take(int64_t epoch, const Spread& s) {
    last_ = std::max(last_, epoch);
    if (!std::isfinite(s.mean)) return;
    low_ = std::min(low_, s.mean - s.deviation.value_or(0)), high_ = std::max(high_, s.mean + s.deviation.value_or(0));
  }
  double x(double epoch) const { return left_ + (last_ > 1 ? kPanel * (epoch - 1) / double(last_ - 1) : kPanel / 2); }
  double y(double value) const { return kBottom - (kBottom - kTop) * (value - low_) / (high_ - low_); }

  void draw_course(size_t i) {
    Svg::Points line, upper, lower;
    for (const auto& [epoch, s] : curves_[i]) {
      if (!std::isfinite(s.mean)) continue;
      const double at = x(double(epoch)), deviation = s.deviation.value_or(0);
      line.emplace_back(at, y(s.mean)), upper.emplace_back(at, y(s.mean + deviation)), lower.emplace_back(at, y(s.mean - deviation));
    }
    upper.insert(upper.end(), lower.rbegin(), lower.rend());
    svg_.area(upper, Svg::spread(i));
    svg_.curve(line, Svg::series(i));
    for (const auto& [epoch, s] : tests_[i])  // beside each other: strategies that agree would hide each other's
      if (std::isfinite(s.mean))
        svg_.dot(x(double(epoch)) + kDots * double(i + 1), y(s.mean), Svg::mark(i), fmt::format("test: {:.4g}", s.mean));
  }

  Svg& svg_;
  double left_;
  std::vector<Course> curves_, tests_;  // by strategy
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
  int64_t last_ = 1;
};

bool has_validation(const std::vector<ComparedStrategy>& strategies) {
  for (const ComparedStrategy& s : strategies)
    for (const FinishedRun& run : s.runs)
      for (const Metrics& m : run.metrics)
        if (m.split == "val") return true;
  return false;
}

}  // namespace

std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title) {
  Svg svg(kWidth, kHeight, title);
  svg.text(kFirst, 26, title, "head");
  const bool validated = has_validation(strategies);
  const std::string split = validated ? "val" : "train", name = validated ? "validation" : "training";
  Panel(svg, kFirst, strategies, split, &Metrics::top1, 100).draw("top-1 accuracy of the " + name + ", %");
  Panel(svg, kSecond, strategies, split, &Metrics::loss, 1).draw("loss of the " + name);
  double at = kFirst;
  for (size_t i = 0; i < strategies.size(); ++i) {
    const ComparedStrategy& s = strategies[i];
    const std::string label = fmt::format("{} on {} device{}", s.name, s.devices, s.devices == 1 ? "" : "s");
    svg.line(at, kLegend - 4, at + 34, kLegend - 4, Svg::series(i));
    svg.text(at + 42, kLegend, label);
    at += 70 + 6.6 * double(label.size());
  }
  const size_t seeds = strategies.empty() ? 0 : strategies[0].runs.size();
  const std::string of_seeds = seeds > 1 ? fmt::format("mean of {} seeds ± standard deviation; ", seeds) : "";
  svg.text(kSecond + kPanel, 26, of_seeds + "dots: the test at the end", "soft", Svg::Anchor::end);
  return svg.str();
}

}  // namespace ringtape

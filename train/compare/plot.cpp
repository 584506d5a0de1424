#include "train/compare/plot.h"

#include <fmt/core.h>

#include "train/compare/panel.h"

namespace ringtape {
namespace {

// Pixels.
constexpr double kPlotWidth = 960, kPlotHeight = 420, kPlotTop = 64, kPlotPanelHeight = 276, kPlotLegend = 392;
constexpr double kPlotPanelWidth = 370, kPlotFirst = 64, kPlotSecond = 540;

bool has_validation(const std::vector<ComparedStrategy>& strategies) {
  for (const ComparedStrategy& s : strategies)
    for (const FinishedRun& run : s.runs)
      for (const Metrics& m : run.metrics)
        if (m.split == "val") return true;
  return false;
}

}  // namespace

std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title) {
  Svg svg(kPlotWidth, kPlotHeight, title);
  svg.text(kPlotFirst, 26, title, "head");
  const bool validated = has_validation(strategies);
  const std::string split = validated ? "val" : "train", name = validated ? "validation" : "training";
  Panel accuracy(kPlotFirst, kPlotTop, kPlotPanelWidth, kPlotPanelHeight),
      loss(kPlotSecond, kPlotTop, kPlotPanelWidth, kPlotPanelHeight);
  double at = kPlotFirst;
  for (size_t i = 0; i < strategies.size(); ++i) {
    const ComparedStrategy& s = strategies[i];
    accuracy.add({i, course(s, split, &Metrics::top1, 100), course(s, "test", &Metrics::top1, 100)});
    loss.add({i, course(s, split, &Metrics::loss, 1), course(s, "test", &Metrics::loss, 1)});
    at = legend(svg, at, kPlotLegend, i, s.str());
  }
  accuracy.draw(svg, "top-1 accuracy of the " + name + ", %");
  loss.draw(svg, "loss of the " + name);
  const size_t seeds = strategies.empty() ? 0 : strategies[0].runs.size();
  const std::string of_seeds = seeds > 1 ? fmt::format("mean of {} seeds ± standard deviation; ", seeds) : "";
  svg.text(kPlotSecond + kPlotPanelWidth, 26, of_seeds + "dots: final test", "soft", Svg::Anchor::end);
  return svg.str();
}

}  // namespace ringtape

#include "train/compare/plot.h"

#include <fmt/core.h>

#include "train/compare/panel.h"

namespace ringtape {
namespace {

// Pixels.
constexpr double kPlotWidth = 960, kPlotTop = 64, kPlotPanelHeight = 276, kPlotLegend = 392, kPlotLine = 20;
constexpr double kPlotPanelWidth = 370, kPlotFirst = 64, kPlotSecond = 540, kPlotBelow = 28;
constexpr size_t kPlotMost = Svg::kSeries;  // rows of a sweep: more curves cannot be told apart

bool has_validation(const std::vector<const ComparedStrategy*>& strategies) {
  for (const ComparedStrategy* s : strategies)
    for (const FinishedRun& run : s->runs)
      for (const Metrics& m : run.metrics)
        if (m.split == "val") return true;
  return false;
}

struct Place {
  double left, baseline;
};
// Where the entries of the legend are, with the lines that they need.
std::vector<Place> legend_places(const std::vector<const ComparedStrategy*>& strategies) {
  std::vector<Place> out;
  Place next{kPlotFirst, kPlotLegend};
  for (const ComparedStrategy* s : strategies) {
    const double width = legend_width(s->str());
    if (next.left > kPlotFirst && next.left + width > kPlotWidth) next = {kPlotFirst, next.baseline + kPlotLine};
    out.push_back(next);
    next.left += width;
  }
  return out;
}

}  // namespace

std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title) {
  std::vector<const ComparedStrategy*> drawn;
  for (const ComparedStrategy& s : strategies) drawn.push_back(&s);
  const bool some = drawn.size() > kPlotMost && !drawn[0]->settings.empty();
  if (some) (drawn = best_first(drawn)).resize(kPlotMost);
  const std::vector<Place> places = legend_places(drawn);
  Svg svg(kPlotWidth, (places.empty() ? kPlotLegend : places.back().baseline) + kPlotBelow, title);
  svg.text(kPlotFirst, 26, some ? fmt::format("{}: the {} best of {}", title, kPlotMost, strategies.size()) : title,
           "head");
  const bool validated = has_validation(drawn);
  const std::string split = validated ? "val" : "train", name = validated ? "validation" : "training";
  Panel accuracy(kPlotFirst, kPlotTop, kPlotPanelWidth, kPlotPanelHeight),
      loss(kPlotSecond, kPlotTop, kPlotPanelWidth, kPlotPanelHeight);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const ComparedStrategy& s = *drawn[i];
    accuracy.add({i, course(s, split, &Metrics::top1, 100), course(s, "test", &Metrics::top1, 100)});
    loss.add({i, course(s, split, &Metrics::loss, 1), course(s, "test", &Metrics::loss, 1)});
    legend(svg, places[i].left, places[i].baseline, i, s.str());
  }
  accuracy.draw(svg, "top-1 accuracy of the " + name + ", %");
  loss.draw(svg, "loss of the " + name);
  const size_t seeds = drawn.empty() ? 0 : drawn[0]->runs.size();
  const std::string of_seeds = seeds > 1 ? fmt::format("mean of {} seeds ± standard deviation; ", seeds) : "";
  svg.text(kPlotSecond + kPlotPanelWidth, 26, of_seeds + "dots: final test", "soft", Svg::Anchor::end);
  return svg.str();
}

}  // namespace ringtape

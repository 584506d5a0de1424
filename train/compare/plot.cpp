#include "train/compare/plot.h"

#include <fmt/core.h>

#include "train/compare/panel.h"

namespace ringtape {
namespace {

// Pixels.
constexpr double kWidth = 960, kHeight = 420, kTop = 64, kPanelHeight = 276, kLegend = 392;
constexpr double kPanel = 370, kFirst = 64, kSecond = 540;

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
  Panel accuracy(kFirst, kTop, kPanel, kPanelHeight), loss(kSecond, kTop, kPanel, kPanelHeight);
  double at = kFirst;
  for (size_t i = 0; i < strategies.size(); ++i) {
    const ComparedStrategy& s = strategies[i];
    accuracy.add({i, course(s, split, &Metrics::top1, 100), course(s, "test", &Metrics::top1, 100)});
    loss.add({i, course(s, split, &Metrics::loss, 1), course(s, "test", &Metrics::loss, 1)});
    at = legend(svg, at, kLegend, i, s.str());
  }
  accuracy.draw(svg, "top-1 accuracy of the " + name + ", %");
  loss.draw(svg, "loss of the " + name);
  const size_t seeds = strategies.empty() ? 0 : strategies[0].runs.size();
  const std::string of_seeds = seeds > 1 ? fmt::format("mean of {} seeds ± standard deviation; ", seeds) : "";
  svg.text(kSecond + kPanel, 26, of_seeds + "dots: final test", "soft", Svg::Anchor::end);
  return svg.str();
}

}  // namespace ringtape

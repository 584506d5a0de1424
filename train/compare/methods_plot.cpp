#include <algorithm>

#include "train/compare/panel.h"
#include "train/compare/plot.h"

namespace ringtape {
namespace {

// Pixels.
constexpr double kGridWidth = 960, kGridPanelWidth = 390, kGridFirst = 64, kGridSecond = 552;
constexpr double kHead = 26, kGridLegend = 52, kEntry = 296, kLine = 20;  // entries of the legend, side by side
constexpr double kAbove = 44, kGridPanelHeight = 150, kBelow = 36;        // a panel, and the room around it
constexpr size_t kEntries = 3;                                            // entries per line

size_t place_in(std::vector<std::string>& all, const std::string& word) {
  const auto found = std::find(all.begin(), all.end(), word);
  if (found != all.end()) return size_t(found - all.begin());
  all.push_back(word);
  return all.size() - 1;
}

struct Panels {
  Panel accuracy, loss;
  explicit Panels(double top)
      : accuracy(kGridFirst, top, kGridPanelWidth, kGridPanelHeight),
        loss(kGridSecond, top, kGridPanelWidth, kGridPanelHeight) {}
};

}  // namespace

std::string methods_plot(const std::vector<ComparedMethod>& methods, const std::string& title) {
  std::vector<std::string> names, settings;
  for (const ComparedMethod& m : methods) place_in(names, m.method), place_in(settings, m.setting());
  const double top = kGridLegend + kLine * double((settings.size() - 1) / kEntries) + kAbove,
               pitch = kAbove + kGridPanelHeight + kBelow;
  Svg svg(kGridWidth, top + pitch * double(names.size()) - kAbove, title);
  svg.text(kGridFirst, kHead, title, "head");
  for (size_t i = 0; i < settings.size(); ++i)
    legend(svg, kGridFirst + kEntry * double(i % kEntries), kGridLegend + kLine * double(i / kEntries), i, settings[i]);
  std::vector<Panels> panels;
  for (size_t i = 0; i < names.size(); ++i) panels.emplace_back(top + pitch * double(i));
  for (const ComparedMethod& m : methods) {
    Panels& p = panels[place_in(names, m.method)];
    const size_t series = place_in(settings, m.setting());
    p.accuracy.add({series, course(m.under, "knn", &Metrics::top1, 100), {}});
    p.loss.add({series, course(m.under, "train", &Metrics::loss, 1), {}});
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (const Panels& other : panels) panels[i].accuracy.include(other.accuracy.extent());
    panels[i].accuracy.draw(svg, names[i] + ": top-1 accuracy of kNN, %");
    panels[i].loss.draw(svg, names[i] + ": loss");
  }
  return svg.str();
}

}  // namespace ringtape

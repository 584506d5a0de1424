#include "train/compare/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "train/io/json.h"
#include "train/run/metrics_log.h"

namespace ringtape {
namespace {

// "1.234 ± 0.05" in units of 1 / scale.
std::string text(const std::optional<Spread>& s, int digits, double scale) {
  if (!s) return "-";
  const std::string mean = fmt::format("{:.{}f}", s->mean * scale, digits);
  return s->deviation ? fmt::format("{} ± {:.{}f}", mean, *s->deviation * scale, digits) : mean;
}

std::optional<Spread> batch(const ComparedStrategy& s) {
  const std::optional<Spread> all = s.spread(&FinishedRun::batch);
  return all ? std::optional(Spread{all->mean, {}}) : std::nullopt;
}

bool has_validation(const ComparedStrategy& s) { return s.spread(&FinishedRun::val_top1).has_value(); }

// What a row of a sweep is judged by.
double accuracy_of(const ComparedStrategy& s) {
  const double out = s.spread(&FinishedRun::val_top1).value_or(s.spread(&FinishedRun::top1)).mean;
  return std::isnan(out) ? -1 : out;
}

std::vector<Column> strategy_columns(const ComparedStrategy& first) {
  const double reference = first.spread(&FinishedRun::images_per_s).mean;
  const auto speed_up = [reference](const ComparedStrategy& s) -> std::optional<Spread> {
    if (!(reference > 0)) return {};
    return Spread{s.spread(&FinishedRun::images_per_s).mean / reference, {}};
  };
  std::vector<Column> out = {batch_column()};
  // To choose among settings by the test would make it a part of the training.
  if (!first.settings.empty() && has_validation(first))
    out.push_back({"validation top-1, %", "val_top1", field(&FinishedRun::val_top1), 2, 100});
  const std::vector<Column> rest = {
      {"test loss", "test_loss", field(&FinishedRun::loss), 4, 1},
      {"top-1, %", "test_top1", field(&FinishedRun::top1), 2, 100},
      {"top-5, %", "test_top5", field(&FinishedRun::top5), 2, 100},
      {"s per epoch", "epoch_s", field(&FinishedRun::epoch_s), 2, 1},
      {"images/s", "images_per_s", field(&FinishedRun::images_per_s), reference < 100 ? 1 : 0, 1},
      {"speed-up", "speed_up", speed_up, 2, 1},
      {"peak MB per device", "peak_bytes", field(&FinishedRun::peak_bytes), 1, 1e-6},
      {"of which model state", "state_bytes", field(&FinishedRun::state_bytes), 1, 1e-6},
      {"MB sent per step", "step_bytes", field(&FinishedRun::step_bytes), 2, 1e-6},
      {"hidden, %", "hidden", field(&FinishedRun::hidden), 0, 100}};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

Column batch_column() { return {"images per step", "batch", batch, 0, 1}; }

Spread spread_of(const std::vector<double>& values) {
  const auto n = double(values.size());
  Spread out;
  for (const double x : values) out.mean += x / n;
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double x : values) squares += (x - out.mean) * (x - out.mean);
  out.deviation = std::sqrt(squares / (n - 1));
  return out;
}

std::string ComparedStrategy::str() const {
  return concat(settings_text(settings), settings.empty() ? "" : ", ", name, " on ", devices,
                devices == 1 ? " device" : " devices");
}

std::string settings_text(const Combination& settings) {
  std::string out;
  for (const auto& [name, text] : settings) out += concat(out.empty() ? "" : ", ", name, " ", text);
  return out;
}

Spread ComparedStrategy::spread(double FinishedRun::*value) const {
  std::vector<double> all;
  for (const FinishedRun& run : runs) all.push_back(run.*value);
  return spread_of(all);
}

std::optional<Spread> ComparedStrategy::spread(std::optional<double> FinishedRun::*value) const {
  std::vector<double> all;
  for (const FinishedRun& run : runs) {
    if (!(run.*value)) return {};
    all.push_back(*(run.*value));
  }
  return spread_of(all);
}

Table table_of(const std::vector<std::string>& heads, const std::vector<TableRow>& rows) {
  Table out;
  for (const auto& [name, text] : rows.at(0).runs->settings) out.heads.push_back(name);
  out.heads.insert(out.heads.end(), heads.begin(), heads.end());
  for (const Column& c : rows.at(0).columns) out.heads.emplace_back(c.head);
  for (const TableRow& row : rows) {
    auto& cells = out.rows.emplace_back();
    for (const auto& [name, text] : row.runs->settings) cells.push_back(text);
    cells.insert(cells.end(), row.words.begin(), row.words.end());
    for (const Column& c : row.columns) cells.push_back(text(c.value(*row.runs), c.digits, c.scale));
  }
  return out;
}

std::vector<const ComparedStrategy*> best_first(std::vector<const ComparedStrategy*> all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const auto* a, const auto* b) { return accuracy_of(*a) > accuracy_of(*b); });
  return all;
}

std::string best_text(const std::vector<const ComparedStrategy*>& all) {
  if (std::ranges::all_of(all, [&](const ComparedStrategy* s) { return s->settings == all[0]->settings; })) return "";
  const ComparedStrategy& best = *best_first(all)[0];
  return concat("Best ", has_validation(best) ? "validation " : "", "top-1: ", settings_text(best.settings), ". ");
}

void add_figures(Json& out, const ComparedStrategy& runs, const std::vector<Column>& columns) {
  for (const auto& [name, text] : runs.settings) out["settings"][name] = text;
  out["seeds"] = Json::list(), out["runs"] = Json::list();
  for (const FinishedRun& run : runs.runs) out["seeds"].push_back(run.seed), out["runs"].push_back(run.path);
  for (const Column& c : columns) {
    const std::optional<Spread> value = c.value(runs);
    if (!value) continue;
    out[c.key] = Json{{"mean", json_number(value->mean)}};
    if (value->deviation) out[c.key]["deviation"] = json_number(*value->deviation);
  }
}

Table comparison_table(const std::vector<ComparedStrategy>& strategies) {
  std::vector<TableRow> rows;
  for (const ComparedStrategy& s : strategies)
    rows.push_back({{s.name, std::to_string(s.devices)}, &s, strategy_columns(strategies.at(0))});
  return table_of({"strategy", "devices"}, rows);
}

Json comparison_json(const std::vector<ComparedStrategy>& strategies) {
  Json out = Json::list();
  for (const ComparedStrategy& s : strategies) {
    Json& row = out.push_back(Json{{"strategy", s.name}, {"devices", s.devices}});
    add_figures(row, s, strategy_columns(strategies.at(0)));
  }
  return out;
}

}  // namespace ringtape

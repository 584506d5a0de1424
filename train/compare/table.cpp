#include "train/compare/table.h"

#include <fmt/core.h>

#include <cmath>

#include "core/check.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

// "1.234 ± 0.05" in units of 1 / scale.
std::string text(const std::optional<Spread>& s, int digits, double scale) {
  if (!s) return "-";
  const std::string mean = fmt::format("{:.{}f}", s->mean * scale, digits);
  return s->deviation ? fmt::format("{} ± {:.{}f}", mean, *s->deviation * scale, digits) : mean;
}

std::vector<Column> strategy_columns(const ComparedStrategy& first) {
  const double reference = first.spread(&FinishedRun::images_per_s).mean;
  const auto speed_up = [reference](const ComparedStrategy& s) -> std::optional<Spread> {
    if (!(reference > 0)) return {};
    return Spread{s.spread(&FinishedRun::images_per_s).mean / reference, {}};
  };
  return {{"test loss", "test_loss", field(&FinishedRun::loss), 4, 1},
          {"top-1, %", "test_top1", field(&FinishedRun::top1), 2, 100},
          {"top-5, %", "test_top5", field(&FinishedRun::top5), 2, 100},
          {"s per epoch", "epoch_s", field(&FinishedRun::epoch_s), 2, 1},
          {"images/s", "images_per_s", field(&FinishedRun::images_per_s), reference < 100 ? 1 : 0, 1},
          {"speed-up", "speed_up", speed_up, 2, 1},
          {"peak MB per device", "peak_bytes", field(&FinishedRun::peak_bytes), 1, 1e-6},
          {"of which model state", "state_bytes", field(&FinishedRun::state_bytes), 1, 1e-6},
          {"MB sent per step", "step_bytes", field(&FinishedRun::step_bytes), 2, 1e-6},
          {"hidden, %", "hidden", field(&FinishedRun::hidden), 0, 100}};
}

}  // namespace

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
  return concat(name, " on ", devices, devices == 1 ? " device" : " devices");
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

std::string markdown_table(const std::vector<std::string>& heads, const std::vector<TableRow>& rows) {
  std::string head = "|", rule = "|", body;
  for (const std::string& h : heads) head += concat(" ", h, " |"), rule += "---|";
  for (const Column& c : rows.at(0).columns) head += concat(" ", c.head, " |"), rule += "---|";
  for (const TableRow& row : rows) {
    body += "|";
    for (const std::string& word : row.words) body += concat(" ", word, " |");
    for (const Column& c : row.columns) body += concat(" ", text(c.value(*row.runs), c.digits, c.scale), " |");
    body += "\n";
  }
  return head + "\n" + rule + "\n" + body;
}

void add_figures(Json& out, const ComparedStrategy& runs, const std::vector<Column>& columns) {
  out["seeds"] = Json::list(), out["runs"] = Json::list();
  for (const FinishedRun& run : runs.runs) out["seeds"].push_back(run.seed), out["runs"].push_back(run.path);
  for (const Column& c : columns) {
    const std::optional<Spread> value = c.value(runs);
    if (!value) continue;
    out[c.key] = Json{{"mean", json_number(value->mean)}};
    if (value->deviation) out[c.key]["deviation"] = json_number(*value->deviation);
  }
}

std::string comparison_table(const std::vector<ComparedStrategy>& strategies) {
  std::vector<TableRow> rows;
  for (const ComparedStrategy& s : strategies)
    rows.push_back({{s.name, std::to_string(s.devices)}, &s, strategy_columns(strategies.at(0))});
  return markdown_table({"strategy", "devices"}, rows);
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

#include "train/compare/table.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/check.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

using Json = nlohmann::ordered_json;

// "1.234 ± 0.05" in units of 1 / scale.
std::string text(const std::optional<Spread>& s, int digits, double scale = 1) {
  if (!s) return "-";
  const std::string mean = fmt::format("{:.{}f}", s->mean * scale, digits);
  return s->deviation ? fmt::format("{} ± {:.{}f}", mean, *s->deviation * scale, digits) : mean;
}

struct Column {
  const char *head, *key;
  std::function<std::optional<Spread>(const ComparedStrategy&)> value;
  int digits;
  double scale;
};

template <class Member>
std::function<std::optional<Spread>(const ComparedStrategy&)> field(Member member) {
  return [member](const ComparedStrategy& s) -> std::optional<Spread> { return s.spread(member); };
}

std::vector<Column> columns(const ComparedStrategy& first) {
  const double reference = first.spread(&FinishedRun::images_per_s).mean;
  const auto speed_up = [reference](const ComparedStrategy& s) -> std::optional<Spread> {
    if (!(reference > 0)) return {};
    return Spread{s.spread(&FinishedRun::images_per_s).mean / reference, {}};
  };
  return {{"test loss", "test_loss", field(&FinishedRun::loss), 4, 1},
          {"top-1, %", "test_top1", field(&FinishedRun::top1), 2, 100},
          {"top-5, %", "test_top5", field(&FinishedRun::top5), 2, 100},
          {"s an epoch", "epoch_s", field(&FinishedRun::epoch_s), 2, 1},
          {"images/s", "images_per_s", field(&FinishedRun::images_per_s), reference < 100 ? 1 : 0, 1},
          {"speed-up", "speed_up", speed_up, 2, 1},
          {"peak MB a device", "peak_bytes", field(&FinishedRun::peak_bytes), 1, 1e-6},
          {"MB sent a step", "step_bytes", field(&FinishedRun::step_bytes), 2, 1e-6},
          {"hidden, %", "hidden", field(&FinishedRun::hidden), 0, 100}};
}

}  // namespace

std::optional<FinishedRun> read_finished_run(const std::string& path) {
  const std::string file = path + "/metrics.jsonl";
  if (!std::filesystem::exists(file)) return {};
  std::istringstream lines(read_file(file));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  const Json end = Json::parse(last, nullptr, false);
  if (!end.is_object() || end.value("split", "") != "summary") return {};
  FinishedRun out;
  const auto number = [&](const char* key) {
    const auto value = end.find(key);
    return value != end.end() && value->is_number() ? value->get<double>() : std::nan("");
  };
  out.path = path, out.metrics = read_metrics(file);
  out.seed = end.value("seed", int64_t{0}), out.epochs = end.value("epoch", int64_t{0}), out.steps = end.value("step", int64_t{0});
  out.loss = number("loss"), out.top1 = number("top1"), out.top5 = number("top5");
  out.images_per_s = number("images_per_s"), out.peak_bytes = number("peak_bytes");
  out.epoch_s = number("train_s") / double(out.epochs);
  if (end.contains("comm_bytes")) out.step_bytes = number("comm_bytes") / double(out.steps);
  if (end.contains("comm_s")) out.hidden = hidden_share(number("comm_s"), number("exposed_s"));
  return out;
}

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

std::string comparison_table(const std::vector<ComparedStrategy>& strategies) {
  const std::vector<Column> all = columns(strategies.at(0));
  std::string head = "| strategy | devices |", rule = "|---|---|", rows;
  for (const Column& c : all) head += concat(" ", c.head, " |"), rule += "---|";
  for (const ComparedStrategy& s : strategies) {
    rows += concat("| ", s.name, " | ", s.devices, " |");
    for (const Column& c : all) rows += concat(" ", text(c.value(s), c.digits, c.scale), " |");
    rows += "\n";
  }
  return head + "\n" + rule + "\n" + rows;
}

Json comparison_json(const std::vector<ComparedStrategy>& strategies) {
  Json out = Json::array();
  for (const ComparedStrategy& s : strategies) {
    Json& row = out.emplace_back(Json{{"strategy", s.name}, {"devices", s.devices}, {"seeds", Json::array()}, {"runs", Json::array()}});
    for (const FinishedRun& run : s.runs) row["seeds"].push_back(run.seed), row["runs"].push_back(run.path);
    for (const Column& c : columns(strategies.at(0))) {
      const std::optional<Spread> value = c.value(s);
      if (!value) continue;
      row[c.key] = Json{{"mean", json_number(value->mean)}};
      if (value->deviation) row[c.key]["deviation"] = json_number(*value->deviation);
    }
  }
  return out;
}

}  // namespace ringtape

#include "train/run/metrics_log.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/check.h"
#include "train/io/file.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

constexpr const char *kJsonl = "metrics.jsonl", *kCsv = "metrics.csv";

struct Column {
  const char* name;
  std::optional<double> Metrics::*value;
};
// clang-format off
constexpr Column kColumns[] = {
    {"loss", &Metrics::loss},           {"top1", &Metrics::top1},
    {"top5", &Metrics::top5},           {"lr", &Metrics::lr},
    {"images_per_s", &Metrics::images_per_s}, {"seconds", &Metrics::seconds},
    {"data_s", &Metrics::data_s},       {"forward_s", &Metrics::forward_s},
    {"backward_s", &Metrics::backward_s}, {"optimizer_s", &Metrics::optimizer_s},
    {"peak_bytes", &Metrics::peak_bytes}, {"grad_norm", &Metrics::grad_norm},
    {"loss_scale", &Metrics::loss_scale}, {"ranks", &Metrics::ranks},
    {"comm_bytes", &Metrics::comm_bytes}, {"comm_s", &Metrics::comm_s},
    {"exposed_s", &Metrics::exposed_s}, {"spread", &Metrics::spread},
};
// clang-format on

std::string csv_header() {
  std::string out = "split,epoch,step";
  for (const Column& c : kColumns) out += std::string(",") + c.name;
  return out;
}

std::string csv_line(const Metrics& m) {
  std::string out = concat(m.split, ',', m.epoch, ',', m.step);
  for (const Column& c : kColumns) {
    out += ',';
    if (const auto& value = m.*c.value) out += shortest(*value);
  }
  return out;
}

}  // namespace

double hidden_share(double comm_s, double exposed_s) { return comm_s > 0 ? std::clamp(1 - exposed_s / comm_s, 0.0, 1.0) : 1; }

nlohmann::ordered_json json_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (x == std::floor(x) && std::abs(x) < 0x1p53) return int64_t(x);
  return x;
}

std::string json_line(const Metrics& m) {
  nlohmann::ordered_json out{{"split", m.split}, {"epoch", m.epoch}, {"step", m.step}};
  for (const Column& c : kColumns)
    if (const auto& value = m.*c.value) out[c.name] = json_number(*value);
  return json_text(out);
}

std::vector<Metrics> read_metrics(const std::string& path) {
  std::vector<Metrics> out;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    RT_CHECK_AS(FormatError, json.is_object() && json.contains("split"), path, ": not a line of metrics: ", line);
    if (json["split"] == "summary") continue;
    Metrics& m = out.emplace_back();
    m.split = json.value("split", ""), m.epoch = json.value("epoch", int64_t{0}), m.step = json.value("step", int64_t{0});
    for (const Column& c : kColumns)
      if (const auto value = json.find(c.name); value != json.end() && value->is_number()) m.*c.value = value->get<double>();
  }
  return out;
}

static int64_t length(const MetricsLog::Lengths& lengths, const char* name) {
  const auto found = lengths.find(name);
  return found == lengths.end() ? 0 : found->second;
}

MetricsLog::MetricsLog(const RunDir& run, const Lengths& keep)
    : jsonl_(run.file(kJsonl), length(keep, kJsonl)), csv_(run.file(kCsv), length(keep, kCsv)), events_(run) {
  if (csv_.sync() == 0) csv_.write(csv_header());
}

MetricsLog::Lengths MetricsLog::sync() { return {{kJsonl, jsonl_.sync()}, {kCsv, csv_.sync()}}; }

void MetricsLog::write(const Metrics& metrics) {
  jsonl_.write(json_line(metrics));
  csv_.write(csv_line(metrics));
  for (const Column& c : kColumns)
    if (const auto& value = metrics.*c.value) events_.write(metrics.split + "/" + c.name, metrics.step, *value);
}

void MetricsLog::finish(const std::string& summary_line) { jsonl_.write(summary_line); }

}  // namespace ringtape

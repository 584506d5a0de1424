#include "train/run/metrics_log.h"

#include <cmath>

#include "core/text.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

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
    {"peak_bytes", &Metrics::peak_bytes},
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

MetricsLog::MetricsLog(const RunDir& run) : jsonl_(run.file("metrics.jsonl")), csv_(run.file("metrics.csv")) {
  csv_.write(csv_header());
}

void MetricsLog::write(const Metrics& metrics) {
  jsonl_.write(json_line(metrics));
  csv_.write(csv_line(metrics));
}

void MetricsLog::finish(const std::string& summary_line) { jsonl_.write(summary_line); }

}  // namespace ringtape

#include "train/compare/memory_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "train/io/json.h"
#include "train/run/metrics_log.h"

namespace ringtape {

std::optional<double> MemoryRow::deviation() const {
  if (!run || !run->state_bytes || formula == 0) return {};
  return *run->state_bytes / double(formula) - 1;
}

std::optional<double> MemoryRow::peak() const {
  std::optional<double> out;
  if (run)
    for (const Metrics& m : run->metrics)
      if (m.split == "train" && m.peak_bytes) out = std::max(out.value_or(0), *m.peak_bytes);
  return out;
}

static std::string number(std::optional<double> x, double scale, int digits) {
  return x ? fmt::format("{:.{}f}", *x * scale, digits) : "-";
}

static std::string megabytes_of(std::optional<double> bytes) { return number(bytes, 1e-6, 1); }

Table memory_table(const std::vector<MemoryRow>& rows) {
  Table out{{"strategy", "devices", "model state: formula, MB", "measured, MB", "deviation, %", "buckets: formula, MB",
             "peak of tensors, MB", "peak of the process, MB"}};
  for (const MemoryRow& row : rows) {
    const std::string measured = row.run ? megabytes_of(row.run->state_bytes) : "does not fit";
    const std::string process = row.run ? megabytes_of(row.run->process_bytes) : "-";
    out.rows.push_back({row.strategy, std::to_string(row.devices), megabytes_of(double(row.formula)), measured,
                        number(row.deviation(), 100, 2), megabytes_of(double(row.buckets)), megabytes_of(row.peak()),
                        process});
  }
  return out;
}

Json memory_json(const std::vector<MemoryRow>& rows) {
  Json out = Json::list();
  for (const MemoryRow& row : rows) {
    Json& json = out.push_back(Json{{"strategy", row.strategy},
                                    {"devices", row.devices},
                                    {"formula_bytes", row.formula},
                                    {"bucket_bytes", row.buckets},
                                    {"fits", row.run.has_value()}});
    if (!row.run) continue;
    json["run"] = row.run->path;
    const auto add = [&](const char* key, std::optional<double> value) {
      if (value) json[key] = json_number(*value);
    };
    add("state_bytes", row.run->state_bytes), add("deviation", row.deviation());
    add("peak_bytes", row.peak()), add("process_bytes", row.run->process_bytes);
  }
  return out;
}

}  // namespace ringtape

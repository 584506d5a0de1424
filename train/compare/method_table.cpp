#include "train/compare/method_table.h"

#include <algorithm>

#include "core/check.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

// The same method with `single`; null if it was not run.
const ComparedStrategy* single_of(const ComparedMethod& row, const std::vector<ComparedMethod>& all) {
  for (const ComparedMethod& m : all)
    if (m.method == row.method && m.under.name == "single" && m.under.settings == row.under.settings) return &m.under;
  return nullptr;
}

std::vector<Column> method_columns(const ComparedMethod& row, const std::vector<ComparedMethod>& all) {
  const ComparedStrategy* const single = single_of(row, all);
  const auto speed_up = [single](const ComparedStrategy& s) -> std::optional<Spread> {
    const double seconds = s.spread(&FinishedRun::seconds).mean;
    if (!single || !(seconds > 0)) return {};
    return Spread{single->spread(&FinishedRun::seconds).mean / seconds, {}};
  };
  return {batch_column(),
          {"kNN top-1, %", "top1", field(&FinishedRun::top1), 2, 100},
          {"best epoch, %", "best_top1", field(&FinishedRun::best_top1), 2, 100},
          {"time, min", "seconds", field(&FinishedRun::seconds), 2, 1.0 / 60},
          {"s per epoch", "epoch_s", field(&FinishedRun::epoch_s), 2, 1},
          {"speed-up", "speed_up", speed_up, 2, 1},
          {"images/s", "images_per_s", field(&FinishedRun::images_per_s), 0, 1},
          {"peak MB per device", "peak_bytes", field(&FinishedRun::peak_bytes), 1, 1e-6}};
}

const char* yes_or_no(bool yes) { return yes ? "yes" : "no"; }

std::vector<std::string> words(const ComparedMethod& m) {
  const std::string sync_bn = m.under.devices > 1 ? yes_or_no(m.sync_bn) : "-",
                    gather = m.gather ? yes_or_no(*m.gather) : "-";
  return {m.method, m.under.name, std::to_string(m.under.devices), sync_bn, gather};
}

}  // namespace

std::string ComparedMethod::setting() const {
  return concat(under.str(), sync_bn ? ", SyncBN" : "", gather.value_or(false) ? ", gather" : "");
}

std::string ComparedMethod::name() const {
  return concat(method, "-", under.name, "-", under.devices, sync_bn ? "-sync-bn" : "",
                gather.value_or(false) ? "-gather" : "");
}

Table methods_table(const std::vector<ComparedMethod>& methods) {
  std::vector<TableRow> rows;
  for (const ComparedMethod& m : methods) rows.push_back({words(m), &m.under, method_columns(m, methods)});
  return table_of({"method", "strategy", "devices", "SyncBN", "gather"}, rows);
}

Json methods_json(const std::vector<ComparedMethod>& methods) {
  Json out = Json::list();
  for (const ComparedMethod& m : methods) {
    Json& row = out.push_back(Json{{"method", m.method},
                                   {"strategy", m.under.name},
                                   {"devices", m.under.devices},
                                   {"sync_bn", m.sync_bn},
                                   {"gather", nullptr}});
    if (m.gather) row["gather"] = *m.gather;
    add_figures(row, m.under, method_columns(m, methods));
  }
  return out;
}

std::string protocol_of(const std::vector<ComparedMethod>& methods) {
  std::vector<std::string> all;
  for (const ComparedMethod& m : methods)
    for (const FinishedRun& run : m.under.runs)
      if (std::find(all.begin(), all.end(), run.protocol) == all.end()) all.push_back(run.protocol);
  std::string out;
  for (const std::string& protocol : all) out += concat(out.empty() ? "" : "; of other rows: ", protocol);
  return out;
}

}  // namespace ringtape

#include "train/compare/finished_run.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/io/file.h"

namespace ringtape {

std::optional<FinishedRun> read_finished_run(const std::string& path) {
  const std::string file = path + "/metrics.jsonl";
  if (!std::filesystem::exists(file)) return {};
  std::istringstream lines(read_file(file));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  const auto end = nlohmann::json::parse(last, nullptr, false);
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
  for (const Metrics& m : out.metrics) out.seconds += m.seconds.value_or(0);
  if (end.contains("best_top1")) out.best_top1 = number("best_top1");
  out.protocol = end.value("protocol", "");
  return out;
}

}  // namespace ringtape

#include "train/compare/finished_run.h"

#include <cmath>
#include <sstream>

#include "core/check.h"
#include "train/io/file.h"
#include "train/io/json_reader.h"
#include "train/io/look.h"

namespace ringtape {

std::optional<FinishedRun> read_finished_run(const std::string& path) {
  const std::string file = path + "/metrics.jsonl";
  if (!is_there(file)) return {};
  std::istringstream lines(read_file(file));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  Json end;
  try {
    end = parse_json(last, file, 4);
  } catch (const FormatError&) {
    return {};  // an incomplete line
  }
  const Json* split = end.find("split");
  if (!split || *split != "summary") return {};
  const JsonFields fields(end, concat(file, ": the summary"));
  FinishedRun out;
  const auto number = [&](const char* key) {
    const Json* value = end.find(key);
    return value && value->is_number() ? value->get<double>() : std::nan("");
  };
  out.path = path, out.metrics = read_metrics(file);
  out.seed = fields.has("seed") ? fields.whole("seed") : 0, out.epochs = fields.whole("epoch", 1),
  out.steps = fields.whole("step", 1);
  out.loss = number("loss"), out.top1 = number("top1"), out.top5 = number("top5");
  out.images_per_s = number("images_per_s"), out.peak_bytes = number("peak_bytes");
  out.epoch_s = number("train_s") / double(out.epochs);
  if (end.contains("comm_bytes")) out.step_bytes = number("comm_bytes") / double(out.steps);
  if (end.contains("comm_s")) out.hidden = hidden_share(number("comm_s"), number("exposed_s"));
  for (const Metrics& m : out.metrics) out.seconds += m.seconds.value_or(0);
  if (end.contains("best_top1")) out.best_top1 = number("best_top1");
  if (end.contains("protocol")) out.protocol = fields.text("protocol");
  return out;
}

}  // namespace ringtape

#include "train/compare/finished_run.h"

#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/io/look.h"
#include "train/run/metrics_log.h"
#include "train/settings/options.h"

namespace ringtape {

static constexpr const char* kAgain = "; bring the file back, or remove the run's folder to train it again";

// The last line of a file of metrics; none if it is incomplete or no summary.
static std::optional<Json> summary_of(const std::string& line, const std::string& file) {
  Json out;
  try {
    out = parse_json(line, file, 4);
  } catch (const FormatError&) {
    return {};
  }
  const Json* split = out.find("split");
  if (!split || *split != "summary") return {};
  return out;
}

// The images per step in a run's settings.
static std::optional<double> batch_of(const std::string& config) {
  if (!is_there(config)) return {};
  const Json settings = config_values(read_file(config), config);
  const Json* const batch = settings.find("batch-size");
  return batch && batch->is_number() ? std::optional(batch->get<double>()) : std::nullopt;
}

std::optional<FinishedRun> read_finished_run(const std::string& path) {
  const std::string file = path + "/metrics.jsonl";
  if (!is_there(file)) return {};
  const std::string all = read_file(file);
  const size_t start = all.size() < 2 ? 0 : all.rfind('\n', all.size() - 2) + 1;  // of the last line
  const std::optional<Json> summary = summary_of(all.substr(start, all.find('\n', start) - start), file);
  if (!summary) return {};
  const Json& end = *summary;
  const JsonFields fields(end, concat(file, ": the summary"));
  RT_CHECK_AS(FormatError,
              !fields.has(kMetricsCrc) || fields.text(kMetricsCrc) == Crc32().add(all.substr(0, start)).str(), file,
              ": was changed after the training, its checksum does not match", kAgain);
  FinishedRun out;
  const auto number = [&](const char* key) {
    const Json* value = end.find(key);
    return value && value->is_number() ? value->get<double>() : std::nan("");
  };
  out.path = path, out.metrics = read_metrics(file);
  out.seed = fields.has("seed") ? fields.integer("seed") : 0, out.epochs = fields.integer("epoch", 1),
  out.steps = fields.integer("step", 1);
  out.ended_early = end.contains("ended_by");
  out.loss = number("loss"), out.top1 = number("top1"), out.top5 = number("top5");
  out.images_per_s = number("images_per_s"), out.peak_bytes = number("peak_bytes");
  out.epoch_s = number("train_s") / double(out.epochs);
  if (fields.has("parameters")) out.parameters = fields.integer("parameters");
  if (end.contains("state_bytes")) out.state_bytes = number("state_bytes");
  if (end.contains("process_bytes")) out.process_bytes = number("process_bytes");
  if (end.contains("comm_bytes")) out.step_bytes = number("comm_bytes") / double(out.steps);
  if (end.contains("comm_s")) out.hidden = hidden_share(number("comm_s"), number("exposed_s"));
  for (const Metrics& m : out.metrics) {
    out.seconds += m.seconds.value_or(0);
    if (m.split == "val") out.val_top1 = m.top1;
  }
  out.batch = batch_of(path + "/config.toml");
  if (fields.has("run")) out.name = std::filesystem::path(fields.text("run")).filename().string();
  if (end.contains("best_top1")) out.best_top1 = number("best_top1");
  if (end.contains("protocol")) out.protocol = fields.text("protocol");
  int64_t epoch = 0;  // the last one whose training has a line, as have all before it
  for (const Metrics& m : out.metrics) epoch += m.split == "train" && m.epoch == epoch + 1;
  RT_CHECK_AS(FormatError, epoch == out.epochs, file, ": has no line for the training of epoch ", epoch + 1, " of ",
              out.epochs, kAgain);
  return out;
}

}  // namespace ringtape

#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/io/json.h"
#include "train/run/events.h"
#include "train/run/run_dir.h"

namespace ringtape {

// What is known after a pass over a split; a field that does not apply stays empty. Accuracies in [0, 1],
// times in seconds; images_per_s over the whole pass.
struct Metrics {
  // "train", "val" or "test"; "knn" of features, "probe" of a layer on them; "train_step" for one step.
  std::string split;
  int64_t epoch = 0;   // 1 for the first
  int64_t step = 0;    // optimizer steps so far
  int64_t images = 0, steps = 0;  // of the pass; not written to the files
  std::optional<double> left_s;   // of the whole training, by its first epoch; not written to the files
  std::optional<double> loss, top1, top5, lr, images_per_s, seconds;
  std::optional<double> data_s, forward_s, backward_s, optimizer_s;  // where a training pass spent its time
  std::optional<double> peak_bytes;                                  // of tensors on a device, the most of all ranks
  std::optional<double> grad_norm, loss_scale;                       // of a step
  std::optional<double> spread;  // of a self-supervised method's outputs (nn/loss/spread.h)
  std::optional<double> ranks;                                       // where there are several; of the first of them:
  // Handed to all_reduce, or sent among devices; on CPUs: on their way, waited for.
  std::optional<double> comm_bytes, comm_s, exposed_s;
};

// The part of the time that gradients were on their way in which nobody waited for them.
double hidden_share(double comm_s, double exposed_s);

// {"split":"train","epoch":1,...} without the empty fields. JSON has no NaN or infinity: they become the
// strings "nan", "inf" and "-inf".
std::string json_line(const Metrics& metrics);
Json json_number(double x);

// The lines of a metrics.jsonl that are Metrics, as json_line wrote them. Throws IoError, and FormatError with file and
// line for one that is none; with `bad`, that hears of it instead and the line is left out.
std::vector<Metrics> read_metrics(const std::string& path, const std::function<void(const std::string&)>& bad = {});

// metrics.jsonl, metrics.csv with a fixed header, and the scalars of an events file.
class MetricsLog {
 public:
  using Lengths = std::map<std::string, int64_t>;  // bytes, by file name
  // Goes on after these lengths, at step `from`. A file that has become shorter is cut
  // after its last whole line, with a warning.
  explicit MetricsLog(const RunDir& run, const Lengths& keep = {}, int64_t from = 0);
  std::vector<Metrics> earlier() const;  // that were there by then; what is no line of metrics gets a warning
  void write(const Metrics& metrics);
  void finish(const std::string& summary_line);  // the last line of metrics.jsonl
  Lengths sync();                                // puts both files on the disk

 private:
  std::string path_;  // of metrics.jsonl
  LineFile jsonl_, csv_;
  EventFile events_;
};

}  // namespace ringtape

#pragma once
#include <string>
#include <vector>

#include "train/run/metrics_log.h"

namespace ringtape {

// A training that has come to its end, as its run directory tells it.
struct FinishedRun {
  std::string path;
  int64_t seed = 0, epochs = 0, steps = 0;
  double loss = 0, top1 = 0, top5 = 0;                  // of the test
  double epoch_s = 0, images_per_s = 0, peak_bytes = 0;  // seconds of training an epoch; the most of all ranks
  // Between ranks: bytes a step; the part of their time that nobody waited for.
  std::optional<double> step_bytes, hidden;
  std::vector<Metrics> metrics;
  double seconds = 0;  // of all passes over the data, those of tests, too; not of starting, and of no checkpoint
  std::optional<double> best_top1;  // of a self-supervised method: of all epochs; top1 is that of the last
  std::string protocol;             // and by what test
};

// Nothing where the run at `path` has not ended. Throws IoError, FormatError.
std::optional<FinishedRun> read_finished_run(const std::string& path);

}  // namespace ringtape

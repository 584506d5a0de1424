#pragma once
#include <nlohmann/json_fwd.hpp>
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
  std::optional<double> step_bytes, hidden;              // between ranks: bytes a step; the part of their time that nobody waited for
  std::vector<Metrics> metrics;
};

// Nothing where the run at `path` has not ended. Throws IoError, FormatError.
std::optional<FinishedRun> read_finished_run(const std::string& path);

// Over seeds: the mean and the standard deviation (of a sample, with n - 1), which one seed has not.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

// The runs of one strategy, a seed each.
struct ComparedStrategy {
  std::string name;
  int64_t devices = 1;
  std::vector<FinishedRun> runs;

  std::optional<Spread> spread(std::optional<double> FinishedRun::*value) const;  // nothing unless all runs have it
  Spread spread(double FinishedRun::*value) const;
};

// One row a strategy; speed-ups are ratios of images/s to those of the first.
std::string comparison_table(const std::vector<ComparedStrategy>& strategies);  // Markdown
nlohmann::ordered_json comparison_json(const std::vector<ComparedStrategy>& strategies);

}  // namespace ringtape

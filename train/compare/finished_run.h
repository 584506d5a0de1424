#pragma once
#include <string>
#include <vector>

#include "train/run/metrics_log.h"

namespace ringtape {

// The results of a finished run, read from its folder.
struct FinishedRun {
  std::string path, name;  // name: of its folder when it was trained; empty if unknown
  int64_t seed = 0, epochs = 0, steps = 0;
  bool ended_early = false;                              // a limit ended it before its epochs did
  int64_t parameters = 0;                                // of the model; 0 if unknown
  std::optional<double> batch;                           // images per step; empty if unknown
  double loss = 0, top1 = 0, top5 = 0;                   // test results
  std::optional<double> val_top1;                        // of the last validation
  double epoch_s = 0, images_per_s = 0, peak_bytes = 0;  // training seconds per epoch; peak_bytes: maximum over ranks
  // Of the rank that has most: weights, gradients, optimizer and average; the process, before the test.
  std::optional<double> state_bytes, process_bytes;
  // Communication between ranks: bytes per step; the fraction of its time during which no rank waited.
  std::optional<double> step_bytes, hidden;
  std::vector<Metrics> metrics;
  double seconds = 0;               // all passes over the data, tests included; without startup and checkpoints
  std::optional<double> best_top1;  // self-supervised: the best of all epochs; top1 is that of the last
  std::string protocol;             // self-supervised: the kNN protocol
};

// Returns nothing if the run at `path` has not finished. Throws IoError; FormatError if its metrics are not all there,
// or were changed afterwards.
std::optional<FinishedRun> read_finished_run(const std::string& path);

}  // namespace ringtape

#pragma once
#include <functional>
#include <memory>

#include "nn/module.h"
#include "train/data/loader.h"
#include "train/optim/schedule.h"
#include "train/optimizers.h"
#include "train/options.h"
#include "train/run/metrics_log.h"

namespace ringtape {

// Data set and model that the options ask for, on their device; set_threads and the seed are applied. Throws
// for whatever is wrong with the options or the files, before anything has been written.
struct Task {
  explicit Task(const TrainOptions& wanted);

  TrainOptions options;  // resolved
  Device device;
  Splits data;
  std::unique_ptr<nn::Module> model;
};

// Loss and accuracy of the model on samples of a data set, in evaluation mode. Batches of 500 at most.
Metrics evaluate(const Task& task, const Dataset& data, const std::vector<int64_t>& samples,
                 const std::string& split, bool progress = false);

// Supervised training with cross-entropy.
class Trainer {
 public:
  explicit Trainer(Task& task);  // throws UsageError for a batch larger than the set

  int64_t steps_per_epoch() const { return schedule_.steps_per_epoch; }
  int64_t steps() const { return optimizer_->steps(); }
  size_t train_samples() const { return split_.train.size(); }
  size_t val_samples() const { return split_.val.size(); }

  // All epochs, each followed by a validation, then the test; `report` gets the figures of each as they come.
  // Throws Error when the loss is no longer finite.
  void fit(const std::function<void(const Metrics&)>& report, bool progress = false);

 private:
  Metrics train_epoch(int64_t epoch, bool progress);

  Task& task_;
  Holdout split_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
};

}  // namespace ringtape

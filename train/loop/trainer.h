#pragma once
#include <functional>
#include <memory>

#include "train/checkpoint/checkpoint.h"
#include "train/data/loader.h"
#include "train/loop/step_log.h"
#include "train/loop/task.h"
#include "train/optim/schedule.h"
#include "train/run/time_left.h"
#include "train/trace/step_trace.h"

namespace ringtape {

// Trains a task's learner, by all ranks of a group together: each makes one trainer and calls the same. The first of
// them reports and saves.
class Trainer {
 public:
  // Throws UsageError for a batch larger than the set, CommError where ranks differ in settings, data or model.
  explicit Trainer(Task& task, comm::ProcessGroup& group = comm::alone());

  int64_t steps_per_epoch() const { return schedule_.steps_per_epoch(); }
  int64_t steps() const { return step_->count(); }
  double lr() const { return schedule_.lr(); }  // at its peak
  size_t train_samples() const { return split_.train.size(); }
  size_t val_samples() const { return split_.val.size(); }

  // From where it is: the epochs, each followed by the learner's judgement, then its test; `report` gets the figures of
  // each as they come. `save` is called where a checkpoint is due, which state() and
  // files() then describe. False when a signal has stopped it (train/run/stop.h) behind a step or a validation; that is
  // saved too. Throws Error on every rank, naming those where it began, when the loss is no longer finite, and when
  // weights that are not would be saved.
  using Report = std::function<void(const Metrics&)>;
  // With --export best, `load` is to bring what files() describes to how it was when
  // the checkpoint of that step was saved.
  using Save = std::function<void()>;
  using Load = std::function<void(int64_t step)>;
  bool fit(const Report& report, const Save& save = {}, bool progress = false, const Load& load = {});

  // Where this rank's own figures of each epoch go, a line each; nowhere at first.
  void set_diary(std::function<void(const std::string&)> diary) { diary_ = std::move(diary); }

  const TrainState& state() const { return at_; }
  std::vector<TensorFile> files() const;
  Course course() const;
  void restore(const TrainState& state);  // once what files() lists has been read
  void share_state();  // rank 0's, on all ranks; a collective

  // The weights that are validated and tested, averaged ones with --ema, of a method those
  // of its backbone, as a safetensors file.
  void export_weights(const std::string& path) const;

 private:
  bool train_epoch(StepLog& log, const Save& save, bool progress);  // false: stopped within it
  Metrics train_metrics();
  void count_traffic();
  bool leads() const { return group_.rank() == 0; }
  RandomState own_random(const TrainState& state) const;
  void share_buffers();
  Loader make_loader() const;
  void take_best(const Load& load);
  void warn_if_collapsed(double loss, std::optional<double> spread) const;
  std::unique_ptr<Ema::Use> weights_to_judge();
  void checkpoint(const Save& save);
  std::string whose_loss() const;
  void add_own_loss(const Tensor& own, double share);
  std::string own_figures() const;

  Task& task_;
  Learner& learner_;
  comm::ProcessGroup& group_;
  Holdout split_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Step> step_;
  Schedule schedule_;
  StepTrace trace_;
  TrainState at_;
  Readback spread_;                // of the newest step
  Tally tally_;                    // of the epoch at_.epoch
  Readback own_loss_;              // this rank's part in the first step whose loss was not finite, else in the last
  // Of the epoch at_.epoch: this rank's part in all steps before that one.
  double own_losses_ = 0, own_share_ = 0, pending_share_ = 0;
  std::function<void(const std::string&)> diary_;
  comm::Reducer::Totals counted_;  // what at_.traffic has of the reducer's,
  int64_t travelled_ = 0;          // and of the replicas'
  int64_t saved_step_ = -1;        // of the newest checkpoint
  std::optional<TimeLeft> left_;   // of fit()
};

}  // namespace ringtape

#pragma once
#include "core/readback.h"
#include "train/loop/lap_timer.h"
#include "train/loop/training.h"

namespace ringtape {

// What the steps of epoch at.epoch come to, and its lines of metrics: losses, right samples, times and bytes. `at` has
// the times and bytes. Values are read from the device one step or line late, so that nothing waits.
class EpochMeter {
 public:
  // `report` gets a line, with split "train_step", of each step whose number log_every divides: loss, learning rate,
  // images per second since the line before, and, if they exist, gradient norm and loss scale.
  using Report = std::function<void(Metrics)>;
  EpochMeter(const Training& parts, TrainState& at, Report report) : p_(parts), at_(at), report_(std::move(report)) {}

  void begin() { logged_ = {}; }                                                     // of fit()
  void restart(const Tally::Totals& done = {}) { tally_ = Tally(done), own_ = {}; }  // an epoch; steps that are done
  void resume() { since_ = {}, skip_traffic(); }  // steps follow; what happened since settle() does not count
  void add(const Step::Result& result, const Batch& batch, double lr, double loader_images_per_s);
  bool settle();                              // reads and counts all steps so far; returns finite()
  void skip_traffic() { counted_ = sent(); }  // of what a checkpoint gathered

  bool counts_all() const {
    return p_.membership || p_.step->placement().shares() > 0;
  }  // each rank, the samples of all
  const Tally& tally() const { return tally_; }
  bool finite() const { return tally_.finite(); }  // whether every loss so far was
  // Collectives. metrics() warns if the training has collapsed; whose_loss() names the ranks whose samples made the
  // loss non-finite if they are some, not all.
  Tally of_all_ranks() const { return counts_all() ? tally_ : of_all(p_.group, tally_); }
  Metrics metrics();
  std::string whose_loss() const;
  std::string own_figures() const;  // a line: the mean loss of this rank's images, and its times

 private:
  void log(const Step::Result& result, int64_t images, double lr);
  void flush_log();
  comm::Reducer::Totals sent() const;
  void warn_if_collapsed(const Metrics& m) const;

  const Training& p_;
  TrainState& at_;
  const Report report_;
  Metrics line_;  // of the last step that has one, with its
  Readback line_loss_, line_norm_, line_scale_;
  LapTimer logged_, since_;
  int64_t logged_images_ = 0;
  Tally tally_;
  Tensor spread_;  // of the last step
  double loader_images_per_s_ = 0;
  // Sums over the steps of an epoch, up to the first with a non-finite loss: of this rank's share of the loss, f64
  // where it is computed, and of its part of the samples.
  struct Own {
    Tensor losses;
    double parts = 0;
  } own_;
  comm::Reducer::Totals counted_;  // that at_.traffic includes
};

}  // namespace ringtape

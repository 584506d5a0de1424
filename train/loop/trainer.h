#pragma once
#include "train/loop/recovery.h"
#include "train/loop/stop_rule.h"

namespace ringtape {

// Trains a learner on all ranks of a group: each rank creates one trainer and makes the same calls. Rank 0 reports and
// saves. train/settings/run_setup.h makes one from settings.
class Trainer {
 public:
  explicit Trainer(Training parts);
  Trainer(Trainer&&) = delete;

  const Learner& learner() const { return *p_.learner; }
  const Schedule& schedule() const { return p_.schedule; }
  int64_t steps_per_epoch() const { return p_.schedule.steps_per_epoch(); }
  int64_t steps() const { return p_.step->count(); }
  double lr() const { return p_.schedule.lr(); }                  // the peak
  int64_t state_bytes() const { return p_.step->state_bytes(); }  // of this rank

  // Trains from the current state to the end, that of the epochs or of a limit: the epochs, each followed by the
  // learner's judge() where due, then its test(). `report` gets the metrics as they come. `save` is called when a
  // checkpoint is due; state() and files() then describe it. Returns false if a signal stopped it (train/run/stop.h)
  // after a step, or in a validation, which is then repeated; that state is saved too. Throws Error on every rank,
  // naming the ranks where it began, when the loss is not finite, and when non-finite weights would be saved.
  using Report = std::function<void(const Metrics&)>;
  // With --export best, `load` must read into the tensors of files() the values of the checkpoint of that step.
  using Save = std::function<void()>;
  using Load = std::function<void(int64_t step)>;
  bool fit(const Report& report, const Save& save = {}, bool progress = false, const Load& load = {});

  // After fit(): the number of epochs, also of one that a limit has cut short; which limit ended them before --epochs
  // ("max-steps"; empty: none), and a line about it.
  int64_t epochs_begun() const { return at_.epochs_begun(); }
  const std::string& ended_by() const { return stop_.ended_by(); }
  std::string end_text() const { return stop_.end_text(); }

  // After fit(): bytes of the rank that has most of them.
  struct Memory {
    int64_t state = 0;    // Step::state_bytes()
    int64_t process = 0;  // peak_process_bytes() before the test
  };
  const Memory& memory() const { return memory_; }

  // Without --trace, its step is recorded into this file by rank 0; all ranks call it, or none.
  void trace_into(const std::string& path) { p_.trace.otherwise_into(path); }
  // Where these go, by default nowhere: a line with this rank's own loss and times, after each epoch; the metrics, on
  // every rank, besides rank 0's report; on rank 0 snapshots, as often as --snapshots says.
  void set_rank_log(std::function<void(const std::string&)> rank_log) { rank_log_ = std::move(rank_log); }
  void set_backlog(Report backlog) { backlog_ = std::move(backlog); }
  void on_snapshot(std::function<void(const Snapshot&)> snapshot) { snapshot_ = std::move(snapshot); }

  // `f` gets, once, the seconds that are left, if these are a minute or more, after `after` seconds of fit().
  void on_estimate(std::function<void(double left)> f, double after = 60) {
    estimate_ = std::move(f), estimate_after_ = after;
  }

  const TrainState& state() const { return at_; }
  // Until the end of fit(), which leaves the weights that were tested.
  std::vector<TensorFile> files() const { return recovery_.files(); }
  Course course() const;
  void restore(const TrainState& state) { recovery_.restore(state); }  // after reading the tensors of files()
  // Copies the state of rank `source` to all ranks; a collective. Before it, that rank may read into the tensors of
  // files(). Returns that rank's `text`.
  std::string share_state(int source = 0, const std::string& text = "") { return recovery_.share(source, text); }
  // The state after the last whole step, also when an exception has ended fit(). Only with a membership.
  Carried carry();
  void take(const Carried& carried) { recovery_.take(carried); }
  int64_t saved_step() const { return recovery_.saved_step(); }  // of the newest checkpoint
  bool leaves() const { return stop_.leaves(); }                 // after RanksChange: this rank goes

  // After fit(), on all ranks: rank 0 writes the weights that were tested (with --ema the averaged ones; for a method
  // those of its backbone) as a safetensors file.
  void export_weights(const std::string& path = {}) const;

 private:
  bool train_epoch();  // false: a signal stopped it within the epoch
  void train_step(Loader::Epoch& batches);
  bool report_epoch(bool first);  // whether it is the best
  bool judge(bool first);
  void test();
  void write(Metrics& m) const;
  void write_pass(Metrics m) const;  // throws if the loss is not finite
  void tell_estimate();
  std::string progress_note() const;  // behind the bar
  bool is_whole_epoch() const { return at_.batch == steps_per_epoch(); }
  bool leads() const { return p_.group.rank() == 0; }
  std::optional<Snapshot> snapshot_of(const std::string& split, bool last) const;
  void show(std::optional<Snapshot>& snapshot) const;

  Training p_;
  TrainState at_;
  EpochMeter meter_;
  StopRule stop_;
  Recovery recovery_;
  std::unique_ptr<AveragedModel> averaged_;  // from the test on
  Report report_, backlog_;                  // report_, save_: of fit()
  Save save_;
  std::function<void(const std::string&)> rank_log_;
  std::function<void(const Snapshot&)> snapshot_;
  std::function<void(double)> estimate_;  // null: it has been called, or nobody asked for it
  double estimate_after_ = 0;
  Memory memory_;
};

}  // namespace ringtape

#pragma once
#include <functional>
#include <memory>

#include "comm/job/crew.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_options.h"
#include "train/loop/averaged_model.h"
#include "train/loop/callback.h"
#include "train/loop/learner.h"
#include "train/loop/limits.h"
#include "train/loop/step_log.h"
#include "train/loop/stopwatch.h"
#include "train/optim/schedule.h"
#include "train/report/progress.h"
#include "train/run/time_left.h"
#include "train/trace/step_trace.h"

namespace ringtape {

// The components of a training, each made from its own settings, and what the loop itself is told.
struct Training {
  Task& task;
  comm::ProcessGroup& group;
  std::unique_ptr<Learner> learner;
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Step> step;
  Callbacks callbacks;
  Schedule schedule;
  StepTrace trace;
  EvalOptions evaluation;
  int64_t epochs = 1;
  LimitOptions limits;
  CheckpointOptions checkpoint;
  int64_t val_every = 0;  // TrainerOptions
  int64_t log_every = 0, snapshots = 0;  // RunOptions
  uint64_t seed = 1;
  const comm::Crew* crew = nullptr;  // the ranks come and go; null: they stay
  Course course = {};                                // except `files`
  std::map<std::string, std::string> metadata = {};  // of files of weights
};

// What a process of a training with a crew takes from one generation of ranks to the next.
struct Carried {
  TrainState state;
  int64_t saved_step = -1;  // of the newest checkpoint
  Tensors tensors;          // Step::replicated()
};

// Thrown by fit() on every rank after a step, when ranks come or go.
struct RanksChange : Error { using Error::Error; };

// Trains a learner on all ranks of a group: each rank creates one trainer and makes the same calls. Rank 0 reports and
// saves. train/settings/run_setup.h makes one from settings.
class Trainer {
 public:
  explicit Trainer(Training parts);

  const Learner& learner() const { return *p_.learner; }
  const Schedule& schedule() const { return p_.schedule; }
  int64_t steps_per_epoch() const { return p_.schedule.steps_per_epoch(); }
  int64_t steps() const { return p_.step->count(); }
  double lr() const { return p_.schedule.lr(); }  // the peak
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
  int64_t epochs_begun() const { return at_.epoch + (at_.batch > 0 ? 1 : 0); }
  const std::string& ended_by() const { return ended_by_; }
  std::string end_text() const;

  // After fit(): bytes of the rank that has most of them.
  struct Memory {
    int64_t state = 0;    // Step::state_bytes()
    int64_t process = 0;  // peak_process_bytes() before the test
  };
  const Memory& memory() const { return memory_; }

  // Sets where a line with this rank's own loss and times goes after each epoch; by default nowhere.
  void set_diary(std::function<void(const std::string&)> diary) { diary_ = std::move(diary); }

  // Without --trace, its step is recorded into this file by rank 0; all ranks call it, or none.
  void trace_into(const std::string& path) { p_.trace.otherwise_into(path); }
  // Sets what gets the metrics on every rank, besides rank 0's report.
  void set_journal(Report journal) { journal_ = std::move(journal); }
  // Sets where snapshots go on rank 0, as often as --snapshots says; by default nowhere.
  void set_album(std::function<void(const Snapshot&)> album) { album_ = std::move(album); }

  const TrainState& state() const { return at_; }
  std::vector<TensorFile> files() const;  // until the end of fit(), which leaves the weights that were tested
  Course course() const;
  void restore(const TrainState& state);  // call it after reading the tensors of files()
  // Copies the state of rank `source` to all ranks; a collective. Before it, that rank may read into the tensors of
  // files(). Returns that rank's `text`.
  std::string share_state(int source = 0, const std::string& text = "");
  // The state after the last whole step, also when an exception has ended fit(). Only with a crew.
  Carried carry();
  void take(const Carried& carried);
  int64_t saved_step() const { return saved_step_; }  // of the newest checkpoint
  // After RanksChange: whether this rank is one that goes.
  bool leaves() const { return asked_to_stop_ && p_.group.size() > 1; }

  // After fit(), on all ranks: rank 0 writes the weights that were tested (with --ema the averaged ones; for a method
  // those of its backbone) as a safetensors file.
  void export_weights(const std::string& path = {}) const;

 private:
  // trainer.cpp
  // False: a signal stopped it within the epoch.
  bool train_epoch(StepLog& log, const Report& report, const Save& save, bool progress);
  bool validation_is_due() const;  // within the epoch, before its next step
  bool report_epoch(const Report& report, bool progress, bool first);  // whether it is the best
  void change_or_stop(int64_t stops);                                  // throws RanksChange unless all stop
  void train_step(Loader::Epoch& batches, StepLog& log);
  enum class Wish : uint8_t { none, stop, change, end };
  Riders own_riders(bool stop) const;
  Wish wish() const;  // of any rank, in the step that ended
  bool stops_all(int64_t stops) const;  // whether too few are left without so many ranks
  void show_progress(Progress& bar) const;
  double seconds_left() const;
  void settle(StepLog& log);  // reads what the device has computed so far, and counts it
  // Whether each rank counts the samples of all.
  bool counts_all() const { return p_.crew || p_.step->placement().shares() > 0; }
  Tally whole_tally() const;
  Metrics train_metrics();
  void count_traffic();
  void skip_traffic();
  int64_t most_on_a_rank(int64_t bytes) const;
  void add_own_loss(const Tensor& own, double share);
  void emit(const Report& report, Metrics m, int64_t epoch) const;
  bool judge(const Report& report, int64_t epoch, bool progress, bool first);  // whether epoch is the best
  bool ends();
  bool time_is_up() const { return leads() && time_limit_ && at_.trained >= *time_limit_; }
  void test(const Report& report, bool progress);
  bool is_whole_epoch() const { return at_.batch == steps_per_epoch(); }
  EvalOptions passes(bool progress, bool may_end) const;
  std::optional<Snapshot> snapshot_of(int64_t epoch, const std::string& split, bool last) const;
  void show(std::optional<Snapshot>& snapshot) const;
  // trainer_report.cpp
  std::string whose_loss() const;
  std::string own_figures() const;
  void warn_if_collapsed(double loss, std::optional<double> spread) const;
  // trainer_state.cpp
  void checkpoint(const Save& save);
  void share_buffers();
  std::unique_ptr<AveragedModel> weights_to_judge();
  void take_best(const Load& load);
  RandomState own_random(const TrainState& state) const;
  void remember();
  bool leads() const { return p_.group.rank() == 0; }

  Training p_;
  std::unique_ptr<AveragedModel> averaged_;  // from the test on
  int64_t average_known_ = -1;  // of the step with Step::average_statistics()
  double loader_images_per_s_ = 0;
  TrainState at_;
  Stopwatch whole_;    // of epoch at_.epoch
  Readback spread_;    // of the last step
  Tally tally_;        // of epoch at_.epoch
  Readback own_loss_;  // this rank's share of the loss: of the first step with a non-finite loss, else of the last step
  // Of epoch at_.epoch: this rank's share in all steps before that one.
  double own_losses_ = 0, own_share_ = 0, pending_share_ = 0;
  std::function<void(const std::string&)> diary_;
  std::function<void(const Snapshot&)> album_;
  Report journal_;
  // With a crew, from the beginning of a step to its end: what it changes apart from weights and optimizer.
  struct Before {
    bool in_step = false;
    Tensors buffers;
    RandomState random;
  } before_;
  bool asked_to_stop_ = false;  // in the last step
  comm::Reducer::Totals counted_;  // the reducer's totals that at_.traffic includes,
  int64_t travelled_ = 0;          // and the replicas' bytes
  int64_t saved_step_ = -1;        // of the newest checkpoint
  Memory memory_;
  std::optional<TimeLeft> left_;  // remaining time of fit(), if only steps end it
  std::optional<double> time_limit_;
  std::string ended_by_;
  Stopwatch fitting_;  // of fit(), since at_.trained was set
};

}  // namespace ringtape

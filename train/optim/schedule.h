#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/settings.h"

namespace ringtape {

// What a course that watches validations knows of them: with the step, it determines the rates to come.
struct Watched {
  double best = 0;                // accuracy
  int64_t bad = 0, cooldown = 0;  // validations
  double lr = 0;
};

// The position in a run, after the warm-up.
struct CourseOfLr {
  double lr;  // the peak
  int64_t step, steps_per_epoch;
  double warmup, all;                // steps of the warm-up, and in total
  const Watched* watched = nullptr;  // null: no validation yet
};

// A course of the learning rate that the command line knows by name, from here or from a program that registers its
// own. `watch`, if it is not null, gets the score of each validation after the warm-up (higher is better: an accuracy,
// or a negative loss), and the peak.
struct ScheduleEntry {
  const char* name;
  double (*rate)(const Settings& settings, const CourseOfLr& course);
  Settings settings = {};
  void (*watch)(const Settings& settings, double lr, std::optional<Watched>& watched, double score) = nullptr;
  // The optimizer's momentum in this step; nothing: as it is.
  std::optional<double> (*momentum)(const Settings& settings, const CourseOfLr& course) = nullptr;
};
std::span<const ScheduleEntry> schedules();
struct RegisterSchedule {
  explicit RegisterSchedule(const ScheduleEntry& entry);
};

struct ScheduleOptions {
  double lr = 1e-3;               // the peak, for one rank
  double base_lr = 0;             // for 256 images; 0: lr is given directly
  std::string lr_scale = "none";  // how lr grows with the ranks
  Selection course{schedules(), "constant"};
  double warmup_epochs = 0;  // linear: step s has warmup_lr + (lr - warmup_lr) (s + 1) / (warm-up steps)
  double warmup_lr = 0;      // learning rate at the start of the warm-up
};
void visit(Fields& f, ScheduleOptions& o);  // except the settings of each course

// Sets lr to base_lr batch_size / 256 if base_lr is above 0.
void settle_lr(ScheduleOptions& options, int64_t batch_size);
// The peak learning rate: lr, multiplied for `ranks` ranks as lr_scale says.
double peak_lr(const ScheduleOptions& options, int ranks);

// The learning rate as a function of the step. `step` counts from 0; a fractional epoch is step / steps_per_epoch. The
// courses are in train/optim/courses.h.
class Schedule {
 public:
  // lr: the peak; max_steps: the training ends with this step if it is not 0, and fewer than those of all epochs.
  // Throws UsageError for an unknown schedule, with the nearest name, and for settings that make no sense.
  explicit Schedule(const ScheduleOptions& options = {}, double lr = 0.1, int64_t steps_per_epoch = 1,
                    int64_t epochs = 1, int64_t max_steps = 0);

  double at(int64_t step) const;
  std::optional<double> momentum_at(int64_t step) const;  // nothing: the optimizer's own

  double lr() const { return lr_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t steps() const { return steps_; }                                             // in total
  double warmup() const { return options_.warmup_epochs * double(steps_per_epoch_); }  // steps

  // Whether later rates depend on validations: then they must be told, after `step` steps, and the state must be kept.
  bool watches() const { return entry_->watch; }
  void watch(int64_t step, double score);
  const std::optional<Watched>& watched() const { return watched_; }
  void set_watched(const std::optional<Watched>& watched) { watched_ = watched; }

 private:
  CourseOfLr course_at(int64_t step) const;
  double after_warmup(int64_t step) const;

  ScheduleOptions options_;
  const ScheduleEntry* entry_;
  double lr_;
  int64_t steps_per_epoch_, steps_;
  std::optional<Watched> watched_;
};

// What changes for a run that goes on after `step` steps if the schedule ends elsewhere than before: both ends and both
// rates. Empty: no rate changes.
std::string moved_end(const Schedule& before, const Schedule& now, int64_t step);
std::string warmup_beyond_end(const Schedule& schedule);  // that the warm-up is not over when the run is; empty: it is

}  // namespace ringtape

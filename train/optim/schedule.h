#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/settings.h"

namespace ringtape {

// The position in a run, after the warm-up.
struct CourseOfLr {
  double lr;  // the peak
  int64_t step, steps_per_epoch;
  double warmup, all;  // steps of the warm-up, and in total
};

// A course of the learning rate that the command line knows by name, from here or from a program that registers its
// own.
struct ScheduleEntry {
  const char* name;
  double (*rate)(const Settings& settings, const CourseOfLr& course);
  Settings settings = {};
};
std::span<const ScheduleEntry> schedules();
struct RegisterSchedule {
  explicit RegisterSchedule(const ScheduleEntry& entry);
};

struct StepScheduleOptions {
  int64_t step_size = 30;  // epochs between drops
  double gamma = 0.1;      // factor per drop
};
void visit(Fields& f, StepScheduleOptions& o);

struct CosineOptions {
  double final_lr = 0;      // learning rate at the end
  std::string by = "step";  // or "epoch": all steps of an epoch have the rate of its first
};
void visit(Fields& f, CosineOptions& o);

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

// The learning rate as a function of the step. `step` counts from 0; a fractional epoch is step / steps_per_epoch.
class Schedule {
 public:
  // lr: the peak; max_steps: the training ends with this step if it is not 0, and fewer than those of all epochs.
  // Throws UsageError for an unknown schedule, with the nearest name.
  explicit Schedule(const ScheduleOptions& options = {}, double lr = 0.1, int64_t steps_per_epoch = 1,
                    int64_t epochs = 1, int64_t max_steps = 0);

  // constant: lr. step: lr gamma^(whole epochs / step_size). cosine: from lr at the end of the warm-up to final_lr
  // after the last step, by step: final + (lr - final) (1 + cos(pi t)) / 2; by epoch as PyTorch's CosineAnnealingLR.
  double at(int64_t step) const;

  double lr() const { return lr_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t steps() const { return steps_; }  // in total

 private:
  ScheduleOptions options_;
  const ScheduleEntry* entry_;
  double lr_;
  int64_t steps_per_epoch_, steps_;
};

}  // namespace ringtape

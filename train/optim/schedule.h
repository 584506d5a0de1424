#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/settings.h"

namespace ringtape {

// Where a training is after its warm-up.
struct CourseOfLr {
  double lr;  // the peak
  int64_t step, steps_per_epoch;
  double warmup, all;  // steps of the warm-up, and in all
};

// A course of the learning rate the command line knows by name.
struct ScheduleEntry {
  const char* name;
  double (*rate)(const Settings& settings, const CourseOfLr& course);
  Settings settings = {};
};
std::span<const ScheduleEntry> schedules();

struct StepScheduleOptions {
  int64_t step_size = 30;  // epochs between drops
  double gamma = 0.1;      // factor of a drop
};
void visit(Fields& f, StepScheduleOptions& o);

struct CosineOptions {
  double final_lr = 0;      // where it ends
  std::string by = "step";  // or "epoch": all steps of an epoch have the rate of its first
};
void visit(Fields& f, CosineOptions& o);

struct ScheduleOptions {
  double lr = 1e-3;               // the peak, for one rank
  double base_lr = 0;             // 0: lr is what is said
  std::string lr_scale = "none";  // how lr grows with the ranks
  Selection course{schedules(), "constant"};
  double warmup_epochs = 0;  // linear: step s has warmup_lr + (lr - warmup_lr) (s + 1) / (warm-up steps)
  double warmup_lr = 0;      // where the warm-up begins
};
void visit(Fields& f, ScheduleOptions& o);  // but for the settings of the courses themselves

// What base_lr makes of lr, for batches of so many images.
void settle_lr(ScheduleOptions& options, int64_t batch_size);
// The learning rate at its peak: lr as lr_scale has it for so many ranks.
double peak_lr(const ScheduleOptions& options, int ranks);

// The learning rate as a function of the step. `step` counts from 0; a fractional epoch is step / steps_per_epoch.
class Schedule {
 public:
  // lr: the peak. Throws UsageError for an unknown schedule, with the nearest name.
  explicit Schedule(const ScheduleOptions& options = {}, double lr = 0.1, int64_t steps_per_epoch = 1,
                    int64_t epochs = 1);

  // constant: lr. step: lr gamma^(whole epochs / step_size). cosine: from lr at the end of the warm-up to final_lr
  // after the last step, by step: final + (lr - final) (1 + cos(pi t)) / 2; by epoch as PyTorch's CosineAnnealingLR.
  double at(int64_t step) const;

  double lr() const { return lr_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }

 private:
  ScheduleOptions options_;
  const ScheduleEntry* entry_;
  double lr_;
  int64_t steps_per_epoch_, epochs_;
};

}  // namespace ringtape

#include "train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ringtape {
namespace {

double constant_rate(const Settings&, const CourseOfLr& c) { return c.lr; }

double step_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<StepScheduleOptions>();
  return c.lr * std::pow(o.gamma, double(c.step / c.steps_per_epoch / o.step_size));
}

double cosine_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<CosineOptions>();
  const double rest = c.all - c.warmup;
  const int64_t at = o.by == "epoch" ? c.step / c.steps_per_epoch * c.steps_per_epoch : c.step;
  const double t = rest > 0 ? std::clamp((double(at) - c.warmup) / rest, 0.0, 1.0) : 1;
  return o.final_lr + (c.lr - o.final_lr) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

}  // namespace

static std::vector<ScheduleEntry>& registered_schedules() {
  static std::vector<ScheduleEntry> all = {
      {"constant", constant_rate},
      {"step", step_rate, StepScheduleOptions{}},
      {"cosine", cosine_rate, CosineOptions{}},
  };
  return all;
}

std::span<const ScheduleEntry> schedules() { return registered_schedules(); }
RegisterSchedule::RegisterSchedule(const ScheduleEntry& entry) { add_entry(registered_schedules(), entry); }

void visit(Fields& f, StepScheduleOptions& o) {
  f("step-size", o.step_size, {.help = "epochs between drops of the learning rate", .unit = "N", .range = kPositive});
  f("gamma", o.gamma, {.help = "factor of the learning rate at each drop", .unit = "X", .range = kReal});
}

void visit(Fields& f, CosineOptions& o) {
  f("final-lr", o.final_lr, {.help = "learning rate after the last step", .unit = "X", .range = kReal});
  f("schedule-by", o.by,
    {.help = "whether the learning rate changes with each step, or with each epoch as in PyTorch's CosineAnnealingLR",
     .unit = "NAME",
     .choices = [] { return std::vector<std::string>{"step", "epoch"}; }});
}

void visit(Fields& f, ScheduleOptions& o) {
  f("lr", o.lr, {.help = "peak learning rate", .unit = "X", .range = kReal});
  f("base-lr", o.base_lr,
    {.help = "instead of --lr: the learning rate for 256 images; --lr becomes X * --batch-size / 256",
     .unit = "X",
     .range = kAboveZero,
     .automatic = "none"});
  f("lr-scale", o.lr_scale,
    {.help = "multiply --lr by the number of ranks, or of --shares (linear), by its square root (sqrt) or not (none)",
     .unit = "RULE",
     .choices = [] { return std::vector<std::string>{"none", "linear", "sqrt"}; }});
  f("warmup-epochs", o.warmup_epochs,
    {.help = "epochs in which the learning rate rises linearly, step by step (may be a fraction)",
     .unit = "X",
     .range = kReal});
  f("warmup-lr", o.warmup_lr, {.help = "learning rate at which the warm-up starts", .unit = "X", .range = kReal});
  f("schedule", o.course.name,
    {.help = "schedule of the learning rate",
     .unit = "NAME",
     .choices = [] { return names_of(schedules()); },
     .selects = true});
}

void settle_lr(ScheduleOptions& o, int64_t batch_size) {
  constexpr double kImages = 256;  // images per step that base_lr is for
  if (o.base_lr > 0) o.lr = o.base_lr * double(batch_size) / kImages;
}

double peak_lr(const ScheduleOptions& o, int ranks) {
  return o.lr * (o.lr_scale == "linear" ? ranks : o.lr_scale == "sqrt" ? std::sqrt(double(ranks)) : 1);
}

Schedule::Schedule(const ScheduleOptions& options, double lr, int64_t steps_per_epoch, int64_t epochs,
                   int64_t max_steps)
    : options_(options), entry_(&find_entry(schedules(), options.course.name, "schedule")), lr_(lr),
      steps_per_epoch_(steps_per_epoch),
      steps_(max_steps > 0 ? std::min(max_steps, steps_per_epoch * epochs) : steps_per_epoch * epochs) {}

double Schedule::at(int64_t step) const {
  const ScheduleOptions& o = options_;
  const double warmup = o.warmup_epochs * double(steps_per_epoch_);
  if (double(step) < warmup) return o.warmup_lr + (lr_ - o.warmup_lr) * std::min(1.0, double(step + 1) / warmup);
  return entry_->rate(o.course.chosen(), {lr_, step, steps_per_epoch_, warmup, double(steps_)});
}

}  // namespace ringtape

#include "train/optim/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "train/optim/courses.h"

namespace ringtape {

static std::vector<ScheduleEntry>& registered_schedules() {
  static std::vector<ScheduleEntry> all = {
      {"constant", constant_rate},
      {"step", step_rate, StepScheduleOptions{}},
      {"multistep", multistep_rate, MultistepOptions{}},
      {"exponential", exponential_rate, ExponentialOptions{}},
      {"polynomial", polynomial_rate, PolynomialOptions{}},
      {"cosine", cosine_rate, CosineOptions{}},
      {"restarts", restarts_rate, RestartsOptions{}},
      {.name = "one-cycle", .rate = one_cycle_rate, .settings = OneCycleOptions{}, .momentum = one_cycle_momentum},
      {"plateau", plateau_rate, PlateauOptions{}, watch_for_plateau},
  };
  return all;
}

std::span<const ScheduleEntry> schedules() { return registered_schedules(); }
RegisterSchedule::RegisterSchedule(const ScheduleEntry& entry) { add_entry(registered_schedules(), entry); }

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
     .choices = [] {
       return std::vector<std::string>{"none", "linear", "sqrt"};
     }});
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
      steps_(max_steps > 0 ? std::min(max_steps, steps_per_epoch * epochs) : steps_per_epoch * epochs) {
  RT_CHECK_AS(UsageError, steps_per_epoch >= 1, "a schedule of ", steps_per_epoch,
              " steps per epoch; expected at least 1");
  (void)after_warmup(0);  // checks the settings
}

CourseOfLr Schedule::course_at(int64_t step) const {
  return {lr_, step, steps_per_epoch_, warmup(), double(steps_), watched_ ? &*watched_ : nullptr};
}

double Schedule::after_warmup(int64_t step) const { return entry_->rate(options_.course.chosen(), course_at(step)); }

std::optional<double> Schedule::momentum_at(int64_t step) const {
  if (!entry_->momentum) return {};
  return entry_->momentum(options_.course.chosen(), course_at(step));
}

double Schedule::at(int64_t step) const {
  const ScheduleOptions& o = options_;
  if (double(step) >= warmup()) return after_warmup(step);
  return o.warmup_lr + (lr_ - o.warmup_lr) * std::min(1.0, double(step + 1) / warmup());
}

void Schedule::watch(int64_t step, double score) {
  if (entry_->watch && double(step) >= warmup()) entry_->watch(options_.course.chosen(), lr_, watched_, score);
}

std::string moved_end(const Schedule& before, const Schedule& now, int64_t step) {
  const int64_t shared = std::min(before.steps(), now.steps()) - 1;  // where the earlier end has the most effect
  if (before.at(shared) == now.at(shared)) return "";
  return fmt::format("the schedule ends at step {}, not {} as before: the next learning rate is {:g}, before {:g}",
                     now.steps(), before.steps(), now.at(step), before.at(std::min(step, before.steps() - 1)));
}

std::string warmup_beyond_end(const Schedule& schedule) {
  if (schedule.warmup() <= double(schedule.steps())) return "";
  return fmt::format(
      "the warm-up of {:g} steps is longer than the training of {}: the learning rate rises to {:g} of "
      "{:g} only",
      schedule.warmup(), schedule.steps(), schedule.at(schedule.steps() - 1), schedule.lr());
}

}  // namespace ringtape

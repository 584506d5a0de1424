#include "train/optim/courses.h"

#include <cmath>

#include "core/check.h"
#include "core/parse.h"

namespace ringtape {

static int64_t whole_epochs(const CourseOfLr& c) { return c.step / c.steps_per_epoch; }

double constant_rate(const Settings&, const CourseOfLr& c) { return c.lr; }

void visit(Fields& f, StepScheduleOptions& o) {
  f("step-size", o.step_size, {.help = "epochs between drops of the learning rate", .unit = "N", .range = kPositive});
  f("gamma", o.gamma, {.help = "factor of the learning rate at each drop", .unit = "X", .range = kReal});
}

double step_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<StepScheduleOptions>();
  return c.lr * std::pow(o.gamma, double(whole_epochs(c) / o.step_size));
}

void visit(Fields& f, MultistepOptions& o) {
  f("milestones", o.milestones,
    {.help = "epochs after which the learning rate drops, separated by commas", .unit = "N,..."});
  f("gamma", o.gamma, {.help = "factor of the learning rate at each drop", .unit = "X", .range = kReal});
}

double multistep_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<MultistepOptions>();
  int64_t before = 0, passed = 0;
  for (const std::string& word : split_text(o.milestones)) {
    const auto epoch = parse_number<int64_t>(word);
    RT_CHECK_AS(UsageError, epoch && *epoch > before, "--milestones ", o.milestones,
                ": expected ascending numbers of epochs, such as 30,60,80");
    passed += whole_epochs(c) >= *epoch;
    before = *epoch;
  }
  return c.lr * std::pow(o.gamma, double(passed));
}

void visit(Fields& f, ExponentialOptions& o) {
  f("gamma", o.gamma, {.help = "factor of the learning rate after each epoch", .unit = "X", .range = kReal});
}

double exponential_rate(const Settings& settings, const CourseOfLr& c) {
  return c.lr * std::pow(settings.as<ExponentialOptions>().gamma, double(whole_epochs(c)));
}

void visit(Fields& f, PlateauOptions& o) {
  f("plateau-factor", o.factor, {.help = "factor of the learning rate at each drop", .unit = "X", .range = kFraction});
  f("plateau-patience", o.patience,
    {.help = "validations that may be no better than the best before the learning rate drops (without labels: kNN "
             "tests)",
     .unit = "N",
     .range = kCount});
  f("plateau-threshold", o.threshold,
    {.help = "a validation is better if its accuracy is above (1 + X) times the best, or its loss below 1 - X times",
     .unit = "X",
     .range = kReal});
  f("plateau-cooldown", o.cooldown,
    {.help = "validations after a drop that do not count", .unit = "N", .range = kCount});
  f("plateau-min-lr", o.min_lr, {.help = "lowest learning rate", .unit = "X", .range = kReal});
}

double plateau_rate(const Settings&, const CourseOfLr& c) { return c.watched ? c.watched->lr : c.lr; }

void watch_for_plateau(const Settings& settings, double lr, std::optional<Watched>& watched, double score) {
  constexpr double kLeastDrop = 1e-8;  // PyTorch's eps
  const auto& o = settings.as<PlateauOptions>();
  const auto than = [&](double best) { return best * (best < 0 ? 1 - o.threshold : 1 + o.threshold); };
  const bool better = !watched || score > than(watched->best);
  if (!watched) watched = Watched{.lr = lr};
  Watched& w = *watched;
  if (better) w.best = score, w.bad = 0;
  else ++w.bad;
  if (w.cooldown > 0) --w.cooldown, w.bad = 0;
  if (w.bad <= o.patience) return;
  const double lower = std::max(w.lr * o.factor, o.min_lr);
  if (w.lr - lower > kLeastDrop) w.lr = lower;
  w.cooldown = o.cooldown, w.bad = 0;
}

}  // namespace ringtape

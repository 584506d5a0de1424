#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/optim/courses.h"

// The courses that fall smoothly from the end of the warm-up.
namespace ringtape {
static double half_cosine(double from, double to, double t) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

// Steps since the end of the warm-up: by epoch those of the epoch's first step.
static double steps_after_warmup(const CourseOfLr& c, const std::string& by) {
  return double(by == "epoch" ? c.step / c.steps_per_epoch * c.steps_per_epoch : c.step) - c.warmup;
}

static double part_of_the_rest(const CourseOfLr& c, const std::string& by) {
  const double rest = c.all - c.warmup;
  return rest > 0 ? std::clamp(steps_after_warmup(c, by) / rest, 0.0, 1.0) : 1;
}

void visit(Fields& f, CosineOptions& o) {
  f("final-lr", o.final_lr, {.help = "learning rate after the last step", .unit = "X", .range = kReal});
  f("schedule-by", o.by,
    {.help = "whether the learning rate changes with each step, or with each epoch as in PyTorch's CosineAnnealingLR",
     .unit = "NAME",
     .choices = [] {
       return std::vector<std::string>{"step", "epoch"};
     }});
}

double cosine_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<CosineOptions>();
  return half_cosine(c.lr, o.final_lr, part_of_the_rest(c, o.by));
}

void visit(Fields& f, PolynomialOptions& o) {
  visit(f, o.end);
  f("power", o.power, {.help = "power of the part of the training that is left", .unit = "X", .range = kReal});
}

double polynomial_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<PolynomialOptions>();
  return o.end.final_lr + (c.lr - o.end.final_lr) * std::pow(1 - part_of_the_rest(c, o.end.by), o.power);
}

void visit(Fields& f, RestartsOptions& o) {
  visit(f, o.end);
  f("restart-epochs", o.epochs,
    {.help = "epochs of the first cycle, after which the learning rate is at its peak again",
     .unit = "N",
     .range = kPositive});
  f("restart-mult", o.mult,
    {.help = "how many times longer than the one before each further cycle is", .unit = "N", .range = kPositive});
}

double restarts_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<RestartsOptions>();
  double at = std::max(0.0, steps_after_warmup(c, o.end.by)), cycle = double(o.epochs * c.steps_per_epoch);
  if (o.mult == 1) at = std::fmod(at, cycle);
  for (; at >= cycle; cycle *= double(o.mult)) at -= cycle;
  return half_cosine(c.lr, o.end.final_lr, at / cycle);
}

void visit(Fields& f, OneCycleOptions& o) {
  f("pct-start", o.pct_start,
    {.help = "part of the steps in which the learning rate rises to --lr", .unit = "X", .range = kProbability});
  f("div-factor", o.div_factor,
    {.help = "--lr divided by the learning rate of the first step", .unit = "X", .range = kAboveZero});
  f("final-div-factor", o.final_div_factor,
    {.help = "learning rate of the first step divided by that of the last", .unit = "X", .range = kAboveZero});
  f("anneal", o.anneal, {.help = "form of the rise and the fall", .unit = "NAME", .choices = [] {
                           return std::vector<std::string>{"cos", "linear"};
                         }});
  f("three-phase", o.three_phase, {.help = "fall to where it began in as many steps as it rose, then to the end"});
  f("cycle-momentum", o.cycle_momentum,
    {.help = "momentum (Adam: beta1) goes the other way, between --base-momentum and --max-momentum"});
  f("base-momentum", o.base_momentum, {.help = "momentum at the peak", .unit = "X", .range = kFraction});
  f("max-momentum", o.max_momentum, {.help = "momentum at the first and last step", .unit = "X", .range = kFraction});
}

// Goes through these values, from one to the next in a phase each.
static double one_cycle_value(const OneCycleOptions& o, const CourseOfLr& c, const std::vector<double>& values) {
  const double steps = c.all - c.warmup, up = o.pct_start * steps - 1, last = std::max(0.0, steps - 1);
  const std::vector<double> ends =
      o.three_phase ? std::vector<double>{up, 2 * up, last} : std::vector<double>{up, last};
  const double at = std::clamp(double(c.step) - c.warmup, 0.0, last);
  size_t phase = 0;
  while (phase + 1 < ends.size() && at > ends[phase]) ++phase;
  const double begin = phase > 0 ? ends[phase - 1] : 0, end = ends[phase];
  const double t = end > begin ? std::min(1.0, (at - begin) / (end - begin)) : 1;
  const double from = values[phase], to = values[phase + 1];
  return o.anneal == "cos" ? half_cosine(from, to, t) : (to - from) * t + from;
}

double one_cycle_rate(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<OneCycleOptions>();
  const double first = c.lr / o.div_factor, lowest = first / o.final_div_factor;
  if (o.three_phase) return one_cycle_value(o, c, {first, c.lr, first, lowest});
  return one_cycle_value(o, c, {first, c.lr, lowest});
}

std::optional<double> one_cycle_momentum(const Settings& settings, const CourseOfLr& c) {
  const auto& o = settings.as<OneCycleOptions>();
  const double most = o.max_momentum;
  if (!o.cycle_momentum) return {};
  if (o.three_phase) return one_cycle_value(o, c, {most, o.base_momentum, most, most});
  return one_cycle_value(o, c, {most, o.base_momentum, most});
}

}  // namespace ringtape

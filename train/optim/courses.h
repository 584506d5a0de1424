#pragma once
#include "train/optim/schedule.h"

// The courses of the learning rate that every program has, with their settings. All but `plateau` are functions of the
// step; where PyTorch has one (torch.optim.lr_scheduler), the rates are PyTorch's. Epochs of `step`, `multistep` and
// `exponential` count from the beginning of the run, all others from the end of the warm-up.
namespace ringtape {

struct StepScheduleOptions {
  int64_t step_size = 30;  // epochs between drops
  double gamma = 0.1;      // factor per drop
};
void visit(Fields& f, StepScheduleOptions& o);

struct MultistepOptions {
  std::string milestones = "30,60";  // epochs, ascending, separated by commas
  double gamma = 0.1;                // factor at each
};
void visit(Fields& f, MultistepOptions& o);

struct ExponentialOptions {
  double gamma = 0.95;  // factor per epoch
};
void visit(Fields& f, ExponentialOptions& o);

struct CosineOptions {
  double final_lr = 0;      // learning rate at the end
  std::string by = "step";  // or "epoch": all steps of an epoch have the rate of its first
};
void visit(Fields& f, CosineOptions& o);

struct PolynomialOptions {
  CosineOptions end = {};
  double power = 1;
};
void visit(Fields& f, PolynomialOptions& o);

struct RestartsOptions {
  CosineOptions end = {};  // of each cycle
  int64_t epochs = 10;     // of the first cycle
  int64_t mult = 1;        // how many times longer than the one before each further cycle is
};
void visit(Fields& f, RestartsOptions& o);

struct OneCycleOptions {
  double pct_start = 0.3;  // of the steps, in which the rate rises
  double div_factor = 25, final_div_factor = 1e4;
  std::string anneal = "cos";  // or "linear"
  bool three_phase = false;
  bool cycle_momentum = false;
  double base_momentum = 0.85, max_momentum = 0.95;
};
void visit(Fields& f, OneCycleOptions& o);

struct PlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;    // validations that may be no better
  double threshold = 1e-4;  // better: above the best (1 + threshold)
  int64_t cooldown = 0;     // validations after a drop that do not count
  double min_lr = 0;
};
void visit(Fields& f, PlateauOptions& o);

double constant_rate(const Settings&, const CourseOfLr& c);
// lr gamma^(whole epochs / step_size)
double step_rate(const Settings& settings, const CourseOfLr& c);
// lr gamma^(milestones so far). Throws UsageError if the milestones are not ascending numbers.
double multistep_rate(const Settings& settings, const CourseOfLr& c);
// lr gamma^(whole epochs)
double exponential_rate(const Settings& settings, const CourseOfLr& c);
// From lr at t = 0 to final_lr after the last step, t = 1: final + (lr - final) (1 - t)^power
double polynomial_rate(const Settings& settings, const CourseOfLr& c);
// The same with (1 + cos(pi t)) / 2
double cosine_rate(const Settings& settings, const CourseOfLr& c);
// That with t from 0 to 1 in each cycle.
double restarts_rate(const Settings& settings, const CourseOfLr& c);
// From lr / div_factor to lr in pct_start of the steps, then down to lr / div_factor / final_div_factor; with
// three_phase in as many steps down to where it began, and lower in those that are left.
double one_cycle_rate(const Settings& settings, const CourseOfLr& c);
// If it cycles: from max_momentum to base_momentum and back, in the same steps.
std::optional<double> one_cycle_momentum(const Settings& settings, const CourseOfLr& c);
// lr, multiplied by factor whenever more than `patience` validations, one after another, were no better than the best.
double plateau_rate(const Settings&, const CourseOfLr& c);
void watch_for_plateau(const Settings& settings, double lr, std::optional<Watched>& watched, double score);

}  // namespace ringtape

#include "train/loop/trainer_options.h"

#include <charconv>
#include <cmath>

#include "core/check.h"
#include "train/evaluation/test_copies.h"

namespace ringtape {

void visit(Fields& f, TrainerOptions& o) {
  f("epochs", o.epochs,
    {.help = "passes over the training images", .unit = "N", .range = kPositive, .may_change = true});
  f("batch-size", o.batch_size, {.help = "images per step, over all ranks", .unit = "N", .range = kPositive});
  f("batch-size-per-rank", o.batch_size_per_rank,
    {.help = "instead of --batch-size: images per step and rank",
     .unit = "N",
     .range = kPositive,
     .automatic = "--batch-size is of all ranks"});
  f("limit-train-batches", o.limit_train_batches,
    {.help = "maximum number of steps per epoch; 0: no limit", .unit = "N", .range = kCount});
  f("limit-eval-batches", o.limit_eval_batches,
    {.help = "maximum number of batches of 500 images, spread over all, per validation or test; 0: no limit",
     .unit = "N",
     .range = kCount,
     .may_change = true,
     .evaluates = true});
  f("val-every", o.val_every,
    {.help = "steps between further validations within an epoch; 0: none",
     .unit = "N",
     .range = kCount,
     .may_change = true,
     .with_labels = true});
  f("test-copies", o.test_copies,
    {.help = "average a test's outputs over copies of each image: also flipped left to right, or flipped and shifted "
             "by a pixel (six passes)",
     .unit = "WHICH",
     .choices = names_of_test_copies,
     .may_change = true,
     .evaluates = true,
     .with_labels = true});
}

void visit(Fields& f, LimitOptions& o) {
  f("max-steps", o.max_steps,
    {.help = "end the training after this step of the run, and its schedule with it; 0: after --epochs",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("max-time", o.max_time,
    {.help = "end the training after this time, earlier parts of a resumed run included: 90s, 10m, 1h30m",
     .unit = "TIME",
     .automatic = "none",
     .may_change = true});
  f("patience", o.patience,
    {.help = "early stopping: end the training after N epochs without a better validation (without labels: kNN test); "
             "0: never",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("min-delta", o.min_delta,
    {.help = "--patience: by how much a validation must be better: of an accuracy from 0 to 1, or of the loss",
     .unit = "X",
     .range = kProbability,
     .may_change = true});
}

static double unit_seconds(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86'400 : 0;
}

double seconds_of(const std::string& duration, const std::string& origin) {
  const char *at = duration.data(), *const end = at + duration.size();
  double sum = 0;
  bool good = at != end;
  while (good && at != end) {
    double number = 0;
    const auto [rest, error] = std::from_chars(at, end, number, std::chars_format::fixed);
    const bool bare = rest == end && at == duration.data();
    const double unit = bare ? 1 : rest == end ? 0 : unit_seconds(*rest);
    good = error == std::errc{} && number >= 0 && std::isfinite(number) && unit > 0;
    if (!good) break;
    sum += number * unit;
    at = bare ? rest : rest + 1;
  }
  RT_CHECK_AS(UsageError, good && sum > 0, origin, ": expected a time such as 90s, 10m, 2h or 1h30m, got '", duration,
              "'");
  return sum;
}

}  // namespace ringtape

#include "train/loop/trainer_options.h"

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
    {.help = "maximum number of batches of 500 images per validation or test; 0: no limit",
     .unit = "N",
     .range = kCount,
     .may_change = true,
     .evaluates = true});
}

}  // namespace ringtape

#include "train/loop/trainer_options.h"

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
    {.help = "maximum number of batches of 500 images per validation or test; 0: no limit",
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

}  // namespace ringtape

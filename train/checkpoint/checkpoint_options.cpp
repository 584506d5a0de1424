#include "train/checkpoint/checkpoint_options.h"

namespace ringtape {

void visit(Fields& f, CheckpointOptions& o) {
  f("checkpoint-every", o.every,
    {.help = "epochs between checkpoints; 0: only one, when a signal stops the training",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("checkpoint-steps", o.steps,
    {.help = "steps between further checkpoints within an epoch; 0: none",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("keep", o.keep,
    {.help = "number of newest checkpoints that are kept, in addition to that of the best validation",
     .unit = "N",
     .range = kPositive,
     .may_change = true});
  f("export", o.exported,
    {.help = "weights for the final test and for exported/: the last ones, or those of the best validation (without "
             "labels: best kNN test)",
     .unit = "WHICH",
     .choices =
         [] {
           return std::vector<std::string>{"last", "best"};
         },
     .may_change = true});
  f("best-by", o.best_by,
    {.help = "what makes a validation the best, also for --patience and --schedule plateau: highest top1, lowest loss, "
             "or highest balanced, the mean of the classes' accuracies",
     .unit = "WHICH",
     .choices =
         [] {
           return std::vector<std::string>{"top1", "loss", "balanced"};
         },
     .with_labels = true});
}

}  // namespace ringtape

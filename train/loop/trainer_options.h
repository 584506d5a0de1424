#pragma once
#include "core/fields.h"

namespace ringtape {

// How long a training is, and in which steps.
struct TrainerOptions {
  int64_t epochs = 5;
  int64_t batch_size = 64;
  int64_t batch_size_per_rank = 0;  // 0: as batch_size has it
  int64_t limit_train_batches = 0;  // 0: no limit
  int64_t limit_eval_batches = 0;
};
void visit(Fields& f, TrainerOptions& o);

}  // namespace ringtape

#pragma once
#include "core/fields.h"

namespace ringtape {

// The length of a run and the size of its steps.
struct TrainerOptions {
  int64_t epochs = 5;
  int64_t batch_size = 64;
  int64_t batch_size_per_rank = 0;  // 0: not given; else resolve() sets batch_size to it times the ranks
  int64_t limit_train_batches = 0;  // 0: no limit
  int64_t limit_eval_batches = 0;
  int64_t val_every = 0;  // steps; 0: after each epoch only
  std::string test_copies = "none";  // train/evaluation/test_copies.h
};
void visit(Fields& f, TrainerOptions& o);

}  // namespace ringtape

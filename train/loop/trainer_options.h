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
  int64_t val_every = 0;             // steps; 0: after each epoch only
  std::string test_copies = "none";  // train/evaluation/test_copies.h
};
void visit(Fields& f, TrainerOptions& o);

// What ends a training before its epochs do. It ends as a finished one; --resume with larger limits goes on.
struct LimitOptions {
  int64_t max_steps = 0;  // of the whole run; 0: no limit
  std::string max_time;   // of training, in the whole run: "90s", "10m", "2h"; empty: no limit
  int64_t patience = 0;   // epochs without a better validation; 0: no limit
  double min_delta = 0;   // by which the score of a validation must be higher to count
  bool operator==(const LimitOptions&) const = default;
};
void visit(Fields& f, LimitOptions& o);

// Of "90s", "10m", "1.5h", "2d", "1h30m", or a number of seconds. Throws UsageError, beginning with `origin`.
double seconds_of(const std::string& duration, const std::string& origin);

}  // namespace ringtape

#pragma once
#include <string>

#include "core/fields.h"

namespace ringtape {

// When checkpoints are written, which are kept, and which weights are tested and exported at the end.
struct CheckpointOptions {
  int64_t every = 1;  // epochs
  int64_t steps = 0;  // 0: none within an epoch
  int64_t keep = 2;
  std::string exported = "last";
  std::string best_by = "top1";  // what makes a validation the best one
};
void visit(Fields& f, CheckpointOptions& o);

}  // namespace ringtape

#include "train/optim/optimizer.h"

namespace ringtape {

void Optimizer::step(double lr) {
  ++steps_;
  for (const FlatParameters::Run& run : parameters_.with_gradient()) update(run.begin, run.end, lr, steps_);
  parameters_.values().storage()->written_by("optimizer step");
}

}  // namespace ringtape

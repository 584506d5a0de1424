#include "train/optim/optimizer.h"

namespace ringtape {

void Optimizer::step(double lr, const Tensor& factor) {
  ++steps_;
  const View multiplier = factor.defined() ? View(factor) : View{};
  for (const FlatParameters::Run& run : parameters_.with_gradient()) update(run.begin, run.end, multiplier, lr, steps_);
  parameters_.values().storage()->written_by("optimizer step");
}

}  // namespace ringtape

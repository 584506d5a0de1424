#pragma once
#include <memory>
#include <span>

#include "train/optim/optimizer.h"
#include "train/options.h"

namespace ringtape {

// An update rule the command line knows by name.
struct OptimizerEntry {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const TrainOptions& options, FlatParameters& parameters);
};
std::span<const OptimizerEntry> optimizers();

// The one that the options name; throws UsageError with the nearest name.
std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, FlatParameters& parameters);

}  // namespace ringtape

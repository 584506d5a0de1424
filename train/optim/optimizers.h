#pragma once
#include <memory>
#include <span>

#include "core/settings.h"
#include "train/optim/optimizer.h"

namespace ringtape {

// An update rule that the command line knows by name, from here or from a program that registers its own.
struct OptimizerEntry {
  const char* name;
  Settings settings = {};  // with the defaults of the command line
  std::unique_ptr<Optimizer> (*make)(FlatParameters& parameters, const Settings& settings);
  bool undivided = false;  // the rule needs whole parameters: shards must not divide one
};
std::span<const OptimizerEntry> optimizers();
struct RegisterOptimizer {
  explicit RegisterOptimizer(const OptimizerEntry& entry);
};

// Creates the selected optimizer. Throws UsageError with the nearest name, and for settings that contradict each other.
std::unique_ptr<Optimizer> make_optimizer(const Selection& optimizer, FlatParameters& parameters);

}  // namespace ringtape

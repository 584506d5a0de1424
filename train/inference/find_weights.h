#pragma once
#include <string>

#include "train/settings/given.h"

namespace ringtape {

// What a command line calls weights: a run (also by its name below runs/), a checkpoint or a file.
struct FoundWeights {
  std::string weights, set;  // the file, and which weights in it; see read_weights
  Given settings;            // from the run's config.toml or the file's metadata
};

// `set`: as --weights-key has it. Throws IoError if nothing is there or the run has exported nothing yet, UsageError
// for a set that a checkpoint does not have.
FoundWeights find_weights(const std::string& target, const std::string& set);
bool is_weights(const std::string& target);  // whether there is anything of that name

}  // namespace ringtape

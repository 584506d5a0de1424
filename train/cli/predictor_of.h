#pragma once
#include <vector>

#include "train/cli/command.h"
#include "train/inference/predictor.h"

// Shared by the commands that answer by a Predictor.
namespace ringtape::cli {

// That of the weights in the command's first argument, and how it computes. This thread computes by these flags, too.
Predictor predictor_of(const Invocation& invocation);
std::vector<Flag> predictor_flags();

}  // namespace ringtape::cli

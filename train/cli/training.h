#pragma once
#include "train/cli/common.h"

// What `train` and `pretrain` share.
namespace ringtape::cli {

// Trains as the invocation asks; its exit code.
int run_training(const Invocation& invocation, Use use);

// Settings that a training without labels begins with: those of --preset, or of "corrected" unless a file has some.
void begin_with_preset(TrainOptions& options, const Invocation& invocation);

}  // namespace ringtape::cli

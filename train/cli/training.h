#pragma once
#include "train/cli/common.h"

// What `train` and `pretrain` share.
namespace ringtape::cli {

// Trains as the invocation asks; its exit code.
int run_training(const Invocation& invocation, Use use);

}  // namespace ringtape::cli

#pragma once
#include "train/cli/common.h"

// Shared by `train` and `pretrain`.
namespace ringtape::cli {

// Trains as the command line says; returns the exit code.
int run_training(const Invocation& invocation, Use use);

}  // namespace ringtape::cli

#pragma once
#include <string>

#include "train/loop/step.h"

namespace ringtape {

// Bytes of a rank's weights, gradients, optimizer's state and averaged weights (Step::state_bytes), for so many
// parameters: 4 parameters (2 + K), where K is how many numbers the optimizer and --ema keep for each of them; with
// zero1 4 parameters (2 + K / ranks), with zero2 4 parameters (1 + (1 + K) / ranks), and up to three buckets, with fsdp
// 4 parameters (2 + K) / ranks, and up to three buckets of gradients and of weights.
int64_t model_state_bytes(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks);

std::string megabytes(int64_t bytes);  // "44.7 MB"

// What an error says after "out of memory": which strategy needs less; empty if none does.
std::string smaller_strategy(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks);

}  // namespace ringtape

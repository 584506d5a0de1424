#pragma once
#include <span>
#include <string>

#include "train/loop/step.h"

namespace ringtape {

ModelSize model_size(nn::Module& model);

// Bytes of a rank's weights, gradients, optimizer's state, averaged weights and teacher (Step::state_bytes): in f32,
// those of its strategy's RankMemory, with K numbers of state for each element that the optimizer and --ema keep.
// Shards are as equal as cuts between whole rows allow, or between whole parameters if the optimizer needs them.
int64_t model_state_bytes(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks);

// Bytes of the buckets that come and go beside it in each step, in f32: with --accumulate all of gradients, if any do.
// `places`: of the parameters (flat_places).
int64_t bucket_bytes(std::span<const Part> places, const StepOptions& step, const ParallelOptions& parallel, int ranks);

std::string megabytes(int64_t bytes);  // "44.7 MB"

// What an error says after "out of memory": which strategy needs less; empty if none does.
std::string smaller_strategy(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks);

}  // namespace ringtape

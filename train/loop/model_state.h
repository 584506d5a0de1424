#pragma once
#include <span>
#include <string>

#include "train/loop/step.h"

namespace ringtape {

// The elements of a network.
struct ModelSize {
  int64_t parameters;   // trained ones
  int64_t teacher = 0;  // of a teacher's weights
  int64_t frozen = 0;   // parameters, of which each rank has all
};
ModelSize model_size(nn::Module& model);

// Bytes of a rank's weights, gradients, optimizer's state, averaged weights and teacher (Step::state_bytes):
// 4 parameters (2 + K), where K is how many numbers the optimizer and --ema keep for each of them; with zero1
// 4 parameters (2 + K / ranks), with zero2 4 parameters (1 + (1 + K) / ranks), with fsdp 4 parameters (2 + K) / ranks,
// with hsdp in f32 4 parameters / --shard-within more, with --share-weights 4 parameters (1 - 1 / ranks) less. A
// teacher adds 4 teacher, with fsdp 4 teacher / ranks. Shards are as equal as cuts between whole rows allow, or between
// whole parameters if the optimizer needs them.
int64_t model_state_bytes(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks);

// Bytes of the buckets that come and go beside it in each step, in f32: with zero2 the three largest of gradients, or
// all with --accumulate; with fsdp also those of weights, or all with --keep-weights. 0 with other strategies.
// `places`: of the parameters (flat_places).
int64_t bucket_bytes(std::span<const Part> places, const StepOptions& step, const ParallelOptions& parallel, int ranks);

std::string megabytes(int64_t bytes);  // "44.7 MB"

// What an error says after "out of memory": which strategy needs less; empty if none does.
std::string smaller_strategy(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks);

}  // namespace ringtape

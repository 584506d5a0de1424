#include "train/loop/model_state.h"

#include <fmt/core.h>

#include "nn/nn.h"

namespace ringtape {

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", double(bytes) / 1e6); }

int64_t model_state_bytes(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  nn::Linear any(1, 1);
  FlatParameters flat(any);
  const int64_t kept = int64_t(make_optimizer(step.optimizer, flat)->state().size()) + (step.ema > 0);
  const int64_t own = parameters / ranks;
  return 4 * ((parallel.releases_weights() ? own : parameters) + (parallel.releases_gradients() ? own : parameters) +
              kept * (parallel.shards() ? own : parameters));
}

std::string smaller_strategy(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  const int64_t now = model_state_bytes(parameters, step, parallel, ranks);
  std::string smaller;
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    ParallelOptions shared;
    shared.strategy = strategy;
    const int64_t then = model_state_bytes(parameters, step, shared, ranks);
    if (shared.releases_gradients() && comm::find_reduction(parallel.reducer.reduction.name).whole) continue;
    if (then < now) smaller += concat(", with --strategy ", strategy, " ", megabytes(then));
  }
  if (smaller.empty() || parallel.replicates()) return "";
  return concat("; a rank's weights, gradients and optimizer take ", megabytes(now), smaller);
}

}  // namespace ringtape

#include "train/loop/model_state.h"

#include <fmt/core.h>

#include "nn/nn.h"

namespace ringtape {

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", double(bytes) / 1e6); }

int64_t model_state_bytes(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  nn::Linear any(1, 1);
  FlatParameters flat(any);
  const int64_t kept = int64_t(make_optimizer(step.optimizer, flat)->state().size()) + (step.ema > 0);
  return 4 * (2 * parameters + kept * parameters / (parallel.shards() ? ranks : 1));
}

std::string smaller_strategy(int64_t parameters, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  ParallelOptions shared;
  shared.strategy = "zero1";
  const int64_t now = model_state_bytes(parameters, step, parallel, ranks),
                then = model_state_bytes(parameters, step, shared, ranks);
  if (ranks == 1 || parallel.replicates() || then >= now) return "";
  return concat("; a rank's weights, gradients and optimizer take ", megabytes(now), ", with --strategy zero1 ",
                megabytes(then));
}

}  // namespace ringtape

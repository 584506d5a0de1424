#include "train/loop/model_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "nn/nn.h"
#include "nn/ssl/teacher_weights.h"

namespace ringtape {

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", double(bytes) / 1e6); }

ModelSize model_size(nn::Module& model) {
  const int64_t all = nn::count_parameters(model);
  int64_t trained = 0;
  for (const nn::Named& p : nn::named_parameters(model)) trained += p.tensor->size();
  return {trained, nn::count_teacher(model), all - trained};
}

int64_t model_state_bytes(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  nn::Linear any(1, 1);
  FlatParameters flat(any);
  const int64_t kept = int64_t(make_optimizer(step.optimizer, flat)->state().size()) + (step.ema > 0);
  const RankMemory m = parallel.entry().memory(size, ranks, parallel.strategy.chosen());
  return 4 * (m.weights + m.gradients + kept * m.state + size.frozen);
}

int64_t bucket_bytes(std::span<const Part> places, const StepOptions& step, const ParallelOptions& parallel,
                     int ranks) {
  const RankMemory m = parallel.entry().memory({}, ranks, parallel.strategy.chosen());
  if (ranks == 1 || (m.gradient_buckets == 0 && m.weight_buckets == 0)) return 0;
  std::vector<Part> gradients;
  for (const Part& place : places) gradients.push_back({4 * place.begin, 4 * place.end});
  std::vector<int64_t> buckets;
  for (const Part& bucket : comm::buckets_of(gradients, parallel.reducer))
    buckets.push_back(gradients[size_t(bucket.end - 1)].end - gradients[size_t(bucket.begin)].begin);
  std::ranges::sort(buckets, std::greater());
  const auto largest = [&](size_t count) {
    return std::accumulate(buckets.begin(), buckets.begin() + ptrdiff_t(std::min(count, buckets.size())), int64_t{0});
  };
  const bool all = step.accumulate > 1 && m.gradient_buckets > 0;
  return largest(all ? RankMemory::kAllBuckets : m.gradient_buckets) + largest(m.weight_buckets);
}

std::string smaller_strategy(ModelSize size, const StepOptions& step, const ParallelOptions& parallel, int ranks) {
  const int64_t now = model_state_bytes(size, step, parallel, ranks);
  int64_t least = now;
  std::string smaller;
  for (const StrategyEntry& strategy : strategies()) {
    if (!strategy.shards()) continue;
    if (strategy.shards(Sharded::gradients) && comm::find_reduction(parallel.reducer.reduction.name).needs_all)
      continue;
    ParallelOptions shared;
    shared.strategy.name = strategy.name;
    const int64_t then = model_state_bytes(size, step, shared, ranks);
    if (then < least) smaller += concat(", with --strategy ", strategy.name, " ", megabytes(least = then));
  }
  if (smaller.empty() || parallel.entry().replicas) return "";
  return concat("; a rank's weights, ", size.teacher > 0 ? "teacher, " : "", "gradients and optimizer take ",
                megabytes(now), smaller);
}

}  // namespace ringtape

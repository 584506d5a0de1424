#include "train/strategy/strategies.h"

#include "core/registry.h"
#include "train/strategy/common_weights.h"
#include "train/strategy/replicas.h"
#include "train/strategy/sharded_weights.h"

namespace ringtape {

std::unique_ptr<Placement> place_all(const PlacementInputs& in) { return std::make_unique<Placement>(in); }

RankMemory memory_of_all(const ModelSize& size, int, const Settings&) {
  return {.weights = size.parameters + size.teacher, .gradients = size.parameters, .state = size.parameters};
}

static std::vector<StrategyEntry>& registered_strategies() {
  using enum StrategyEntry::Ranks;
  static std::vector<StrategyEntry> all = {
      {.name = "auto", .summary = "ddp, or single with one device"},
      {.name = "single", .summary = "one process, one device", .ranks = one},
      {.name = "dp",
       .summary = "this process on several devices",
       .settings = ReplicaOptions{},
       .ranks = one,
       .replicas = true,
       .keeps_replicas = keeps_replicas},
      {.name = "ddp", .summary = "one rank for each device"},
      {.name = "zero1",
       .summary = "ddp whose ranks share the optimizer's state",
       .settings = CommonWeights::Options{},
       .sharded = Sharded::state,
       .make = shard_state,
       .memory = memory_with_sharded_state},
      {.name = "zero2",
       .summary = "zero1, also the gradients",
       .settings = CommonWeights::Options{},
       .sharded = Sharded::gradients,
       .make = shard_state,
       .memory = memory_with_sharded_gradients},
      {.name = "fsdp",
       .summary = "zero2, also the weights",
       .settings = ShardedWeights::Options{},
       .sharded = Sharded::weights,
       .make = shard_weights,
       .memory = memory_with_sharded_weights},
      {.name = "hsdp",
       .summary = "fsdp, with the weights once on each machine",
       .settings = ShardedWeights::WithinOptions{},
       .sharded = Sharded::weights,
       .make = shard_weights_within,
       .memory = memory_with_weights_within,
       .check = check_within},
      {.name = "ddp2",
       .summary = "ddp over processes, dp in each",
       .settings = ReplicaOptions{},
       .ranks = any,
       .replicas = true,
       .keeps_replicas = keeps_replicas},
  };
  return all;
}

std::span<const StrategyEntry> strategies() { return registered_strategies(); }
RegisterStrategy::RegisterStrategy(const StrategyEntry& entry) { add_entry(registered_strategies(), entry); }

const StrategyEntry& find_strategy(std::string_view name) { return find_entry(strategies(), name, "strategy"); }

}  // namespace ringtape

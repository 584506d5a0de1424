#include "train/strategy/strategies.h"

#include "core/log.h"
#include "core/registry.h"
#include "train/strategy/common_weights.h"
#include "train/strategy/sharded_weights.h"

namespace ringtape {

std::unique_ptr<Placement> place_all(const PlacementInputs& in) { return std::make_unique<Placement>(in); }

static std::unique_ptr<Placement> shard_state(const PlacementInputs& in) {
  if (!in.parallel.shares_weights()) return std::make_unique<ShardedState>(in);
  if (CommonWeights::possible(in.group)) return std::make_unique<CommonWeights>(in);
  if (in.group.rank() == 0)
    log_warn("--share-weights: ranks over ", in.group.transport().name(),
             " have no memory in common: each has its "
             "own copy; --transport shm, on one machine and its CPU, has");
  return std::make_unique<ShardedState>(in);
}

static std::unique_ptr<Placement> shard_weights(const PlacementInputs& in) {
  return std::make_unique<ShardedWeights>(in);
}

static std::vector<StrategyEntry>& registered_strategies() {
  using enum StrategyEntry::Ranks;
  static std::vector<StrategyEntry> all = {
      {.name = "auto", .summary = "ddp, or single with one device"},
      {.name = "single", .summary = "one process, one device", .ranks = one},
      {.name = "dp", .summary = "this process on several devices", .ranks = one, .replicas = true},
      {.name = "ddp", .summary = "one rank for each device"},
      {.name = "zero1",
       .summary = "ddp whose ranks share the optimizer's state",
       .sharded = Sharded::state,
       .make = shard_state},
      {.name = "zero2", .summary = "zero1, also the gradients", .sharded = Sharded::gradients, .make = shard_state},
      {.name = "fsdp", .summary = "zero2, also the weights", .sharded = Sharded::weights, .make = shard_weights},
      {.name = "hsdp",
       .summary = "fsdp, with the weights once on each machine",
       .sharded = Sharded::weights,
       .within = true,
       .make = shard_weights},
      {.name = "ddp2", .summary = "ddp over processes, dp in each", .ranks = any, .replicas = true},
  };
  return all;
}

std::span<const StrategyEntry> strategies() { return registered_strategies(); }
RegisterStrategy::RegisterStrategy(const StrategyEntry& entry) { add_entry(registered_strategies(), entry); }

const StrategyEntry& find_strategy(std::string_view name) { return find_entry(strategies(), name, "strategy"); }

}  // namespace ringtape

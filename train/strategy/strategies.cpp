#include "train/strategy/strategies.h"

#include "core/registry.h"

namespace ringtape {

std::span<const StrategyEntry> strategies() {
  using enum StrategyEntry::Ranks;
  static const StrategyEntry all[] = {
      {.name = "auto", .summary = "ddp, or single with one device"},
      {.name = "single", .summary = "one process, one device", .ranks = one},
      {.name = "dp", .summary = "this process on several devices", .ranks = one, .replicas = true},
      {.name = "ddp", .summary = "one rank for each device"},
      {.name = "zero1", .summary = "ddp whose ranks share the optimizer's state", .sharded = Sharded::state},
      {.name = "zero2", .summary = "zero1, also the gradients", .sharded = Sharded::gradients},
      {.name = "fsdp", .summary = "zero2, also the weights", .sharded = Sharded::weights},
      {.name = "hsdp",
       .summary = "fsdp, with the weights once on each machine",
       .sharded = Sharded::weights,
       .within = true},
      {.name = "ddp2", .summary = "ddp over processes, dp in each", .ranks = any, .replicas = true},
  };
  return all;
}

const StrategyEntry& find_strategy(std::string_view name) { return find_entry(strategies(), name, "strategy"); }

}  // namespace ringtape

#pragma once
#include <memory>
#include <span>
#include <string_view>

namespace ringtape {

class Placement;
struct PlacementInputs;
std::unique_ptr<Placement> place_all(const PlacementInputs& in);  // all numbers on each rank

// Of which numbers a rank holds its own part only; each also means those before it.
enum class Sharded { nothing, state, gradients, weights };

// A way to divide the work of a job among processes and their devices, from here or from a program that registers its
// own.
struct StrategyEntry {
  const char* name;
  const char* summary;
  // The processes: one alone; one for each device, which are started unless a launcher has done so; as many as a
  // launcher has started.
  enum class Ranks { one, each, any };
  Ranks ranks = Ranks::each;
  bool replicas = false;  // a process has one on each of its devices
  Sharded sharded = Sharded::nothing;
  bool within = false;  // some consecutive ranks together have all weights (ParallelOptions::shard_within)

  std::unique_ptr<Placement> (*make)(const PlacementInputs& in) = place_all;  // for several ranks

  bool one_device() const { return ranks == Ranks::one && !replicas; }
  bool starts_ranks() const { return ranks == Ranks::each; }
  bool shards(Sharded what = Sharded::state) const { return sharded >= what; }
  bool synchronizes() const { return ranks != Ranks::any; }  // layers may use the samples of all devices
};

std::span<const StrategyEntry> strategies();
struct RegisterStrategy {
  explicit RegisterStrategy(const StrategyEntry& entry);
};
const StrategyEntry& find_strategy(std::string_view name);  // throws UsageError

}  // namespace ringtape

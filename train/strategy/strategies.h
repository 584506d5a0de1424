#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/settings.h"

namespace ringtape {

// The elements of a network.
struct ModelSize {
  int64_t parameters;   // trained ones
  int64_t teacher = 0;  // of a teacher's weights
  int64_t frozen = 0;   // parameters, of which each rank has all
};

// How many elements a rank holds from step to step: of weights, with a teacher's, without frozen ones; of gradients; of
// each number that the optimizer keeps. And how many buckets, the largest ones, have memory at a time in a step.
struct RankMemory {
  static constexpr size_t kAllBuckets = size_t(-1);
  int64_t weights, gradients, state;
  size_t gradient_buckets = 0, weight_buckets = 0;
};
RankMemory memory_of_all(const ModelSize& size, int ranks, const Settings& settings);

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
  Settings settings = {};
  // The processes: one alone; one for each device, which are started unless a launcher has done so; as many as a
  // launcher has started.
  enum class Ranks { one, each, any };
  Ranks ranks = Ranks::each;
  bool replicas = false;                                       // a process has one on each of its devices,
  bool (*keeps_replicas)(const Settings& settings) = nullptr;  // from step to step; null: it does not
  Sharded sharded = Sharded::nothing;

  std::unique_ptr<Placement> (*make)(const PlacementInputs& in) = place_all;  // for several ranks
  RankMemory (*memory)(const ModelSize& size, int ranks, const Settings& settings) = memory_of_all;
  // Throws UsageError if these settings cannot divide the work among so many ranks; null: they always can.
  void (*check)(const Settings& settings, int64_t ranks) = nullptr;

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

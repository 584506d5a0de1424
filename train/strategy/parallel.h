#pragma once
#include "comm/parallel/reducer.h"
#include "train/strategy/elastic.h"
#include "train/strategy/strategies.h"

namespace ringtape {

// The devices of a run, and how they communicate.
struct ParallelOptions {
  Selection strategy{strategies(), "auto"};
  int64_t devices = 1;
  std::string gpu_ids;
  std::string transport = "auto";
  bool sync_bn = false;
  int64_t shares = 0;  // of a batch; 0: one for each rank
  comm::ReducerOptions reducer;
  double comm_timeout = 600;  // seconds
  ElasticOptions elastic;

  const StrategyEntry& entry() const { return find_strategy(strategy.name); }
  bool keeps_replicas() const { return entry().keeps_replicas && entry().keeps_replicas(strategy.chosen()); }
  std::vector<int> gpus() const;  // the numbers of --gpu-ids; empty: GPUs from 0
  // The number of devices of this process: that of --gpu-ids, else --devices; 1 without replicas.
  int64_t own_devices() const;
};
void visit(Fields& f, ParallelOptions& o);

// Throws UsageError if the options do not permit ranks that come and go, or fixed shares for so many ranks.
void check_elastic(const ParallelOptions& options);
void check_shares(const ParallelOptions& options, int64_t ranks);

// Throws UsageError if that many ranks, which are processes, cannot use the transport or be divided so.
void check_ranks(const ParallelOptions& options, int64_t ranks);

}  // namespace ringtape

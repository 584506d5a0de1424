#pragma once
#include "comm/parallel/reducer.h"

namespace ringtape {

// On which devices a training runs, and what these tell each other.
struct ParallelOptions {
  std::string strategy = "auto";
  int64_t devices = 1;
  std::string gpu_ids;
  std::string transport = "auto";
  bool sync_bn = false;
  bool dp_persistent = false;
  comm::ReducerOptions reducer;
  double comm_timeout = 600;  // seconds

  bool replicates() const { return strategy == "dp" || strategy == "ddp2"; }
  std::vector<int> gpus() const;  // those of --gpu-ids; empty: from 0 on
  // How many devices this process trains on: as many as --gpu-ids names, else --devices; one without replicas.
  int64_t own_devices() const;
};
void visit(Fields& f, ParallelOptions& o);

}  // namespace ringtape

#pragma once
#include <functional>

#include "comm/algorithm.h"

// The duration of collectives, by the definitions of nccl-tests.
namespace ringtape::comm {

struct CollectiveSettings {
  comm::Collective kind = comm::Collective::all_reduce;
  std::string algorithm = "auto";
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int64_t least = 16 << 10, most = 64 << 20, factor = 4;  // bytes of the larger buffer
  int64_t warmup = 5, iterations = 20;
  bool check = false;
  // Also measure the limit that memory sets for an all_reduce in place: each rank reads its part of all n buffers and
  // writes it to all, 2 n S bytes in total. The bandwidth is measured with y += x on all ranks at once, each with its
  // own buffers: 3 n S bytes.
  bool limit = false;
  comm::Seconds timeout{60};  // of one operation
};

// Of the slowest rank. With t the time and S the bytes: algbw = S / t, busbw = algbw * factor, in GB/s of 1e9 bytes;
// the factor is 2 (n - 1) / n for all_reduce, 1 for broadcast and reduce, (n - 1) / n for the others. busbw is the
// bandwidth of a link, for any number of ranks (nccl-tests, doc/PERFORMANCE.md).
struct Figures {
  double us = 0, algbw = 0, busbw = 0;
  int64_t wrong = -1;  // elements on all ranks; -1: not checked
};
struct CollectiveRow {
  int64_t bytes = 0, count = 0;  // count as in comm::Operation
  const char* algorithm = "";
  Figures out_of_place = {}, in_place = {};
  double limit_us = 0;  // see CollectiveSettings::limit; 0: not measured
};

// The count of comm::Operation if the larger buffer has `bytes` bytes.
int64_t count_of(const CollectiveSettings& settings, int64_t bytes, int ranks);
double bus_factor(comm::Collective kind, int ranks);

// Throws UsageError if these settings make no sense for `ranks` ranks.
void check_settings(const CollectiveSettings& settings, int ranks);

// Called by every rank, with its transport; calls `report` on rank 0 after each size.
using RowFn = std::function<void(const CollectiveRow&)>;
void time_collectives(comm::Transport& transport, const CollectiveSettings& settings, const RowFn& report);

}  // namespace ringtape::comm

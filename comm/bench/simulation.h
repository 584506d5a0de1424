#pragma once
#include "comm/bench/timing.h"
#include "comm/transport/topology.h"

namespace ringtape::comm {

// As time_collectives, in the virtual time of a network: any number of ranks, one thread, the same figures each time.
// With `check`, messages carry data.
void simulate_collectives(int ranks, const comm::Topology& topology, const CollectiveSettings& settings,
                          const RowFn& report);

}  // namespace ringtape::comm

#pragma once
#include <functional>

#include "comm/transport.h"
#include "comm/transport/topology.h"

// Algorithms in virtual time: the code that runs over real transports, over a network of the alpha-beta model, for any
// number of ranks on one thread. The same calls always give the same result.
namespace ringtape::comm {

struct LinkLoad {
  std::string name;
  int64_t messages = 0, bytes = 0;
  double busy = 0;  // s
};

struct SimulationResult {
  double seconds = 0;       // until the last rank was done
  int64_t messages = 0, bytes = 0;
  int64_t steps = 0;        // messages in the longest chain of those that had to wait for each other
  std::vector<LinkLoad> links;  // those that carried any
};

// Whether messages carry their data. With `counted` nobody reads or writes any: allocate() and scratch() give addresses
// without memory behind them, and thousands of ranks need none.
enum class Payload : uint8_t { carried, counted };

// Runs f once for each rank, with its transport. A message begins when both its send and its recv
// have been started, and when its ports are free; both are finished when it has arrived. combine()
// takes gamma s a byte of all sources but the first; copy() takes no time. Throws what f throws
// first on any rank; CommError, naming who waits for whom, when no rank can go on.
SimulationResult simulate(int ranks, const Topology& topology, const std::function<void(Transport&)>& f,
                          Payload payload = Payload::carried);

}  // namespace ringtape::comm

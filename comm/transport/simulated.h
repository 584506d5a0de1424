#pragma once
#include <functional>

#include "comm/transport.h"
#include "comm/transport/topology.h"

// Algorithms in virtual time: runs the same code as real transports over a network of the alpha-beta model, with any
// number of ranks on one thread. The same calls always give the same result.
namespace ringtape::comm {

struct LinkLoad {
  std::string name;
  int64_t messages = 0, bytes = 0;
  double busy = 0;  // s
};

struct SimulationResult {
  double seconds = 0;  // until the last rank was done
  int64_t messages = 0, bytes = 0;
  int64_t steps = 0;            // number of messages in the longest chain of dependent messages
  std::vector<LinkLoad> links;  // only links with messages
};

// Whether messages carry their data. With `counted` no data is read or written: allocate() and scratch() return
// addresses without memory, so that thousands of ranks need no memory for data.
enum class Payload : uint8_t { carried, counted };

// Runs f once for each rank, with its transport. A message begins when both its send and its recv
// have been started, and when its ports are free; both are finished when it has arrived. combine() takes gamma s per
// byte of all sources except the first; copy() takes no time. Throws the first exception of f on any rank; throws
// CommError, naming who waits for whom, when no rank can continue.
SimulationResult simulate(int ranks, const Topology& topology, const std::function<void(Transport&)>& f,
                          Payload payload = Payload::carried);

}  // namespace ringtape::comm

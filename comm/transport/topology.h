#pragma once
#include <cstddef>
#include <limits>
#include <string>

namespace ringtape::comm {

// The cost of a message of b bytes: alpha + b beta.
struct LinkCost {
  double alpha = 0;  // s
  double beta = 0;   // s a byte
};

// Ranks on islands, such as the GPUs of a host with NVLink, and rails between the islands. Rank r sends messages that
// leave its island through rail r % rails; ranks of the island may share a rail. A port carries one message at a time
// in each direction, in the order of their starts, each for a time b beta; the alphas of consecutive messages overlap.
struct Topology {
  int island = std::numeric_limits<int>::max();  // ranks of an island; the last island may be smaller
  LinkCost inside, between;
  int rails = 1;
  double gamma = 0;  // s per byte that is combined into another

  static Topology one_switch(LinkCost cost, double gamma = 0) {
    return {.inside = cost, .between = cost, .gamma = gamma};
  }

  struct Path {
    LinkCost cost;
    size_t out, in;  // ports
  };
  Path path(int from, int to, int ranks) const;
  size_t ports(int ranks) const;
  std::string port_name(size_t port, int ranks) const;  // "rank 3 out", "island 0 rail 1 in"
};

}  // namespace ringtape::comm

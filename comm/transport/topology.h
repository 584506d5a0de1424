#pragma once
#include <cstddef>
#include <limits>
#include <string>

namespace ringtape::comm {

// What a message of b bytes costs: alpha + b beta.
struct LinkCost {
  double alpha = 0;  // s
  double beta = 0;   // s a byte
};

// Ranks on islands, such as the GPUs of a host behind NVLink, and rails between the islands: rank r sends what leaves
// its island through rail r % rails, which ranks of the island may share. A port carries one message at a time in each
// direction, in the order of their starts, b beta each; the alphas of messages in a row overlap.
struct Topology {
  int island = std::numeric_limits<int>::max();  // ranks of one; the last may be smaller
  LinkCost inside, between;
  int rails = 1;
  double gamma = 0;                              // s a byte that is combined into another

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

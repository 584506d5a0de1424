#include "comm/transport/topology.h"

#include "core/text.h"

// Ports: two for each rank, out and in, then two for each rail of each island.
namespace ringtape::comm {

Topology::Path Topology::path(int from, int to, int ranks) const {
  if (from / island == to / island) return {inside, size_t(from) * 2, size_t(to) * 2 + 1};
  const auto port = [&](int rank) { return size_t(ranks + rank / island * rails + rank % island % rails) * 2; };
  return {between, port(from), port(to) + 1};
}

size_t Topology::ports(int ranks) const { return size_t(ranks + ((ranks - 1) / island + 1) * rails) * 2; }

std::string Topology::port_name(size_t port, int ranks) const {
  const int place = int(port / 2), rail = place - ranks;
  const std::string way = port % 2 ? " in" : " out";
  return place < ranks ? concat("rank ", place, way) : concat("island ", rail / rails, " rail ", rail % rails, way);
}

}  // namespace ringtape::comm

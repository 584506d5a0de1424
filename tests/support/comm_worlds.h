#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/process_group.h"
#include "comm/transport/simulated.h"
#include "comm/transport/transports.h"
#include "tests/support/process_ranks.h"
#include "tests/support/thread_ranks.h"

// Ranks over each transport that this machine has, for the tests of collectives.
namespace ringtape::comm::test {

using RankFn = std::function<void(Transport&)>;

using OwnerFn = std::function<void(std::unique_ptr<Transport>)>;

struct World {
  const char* name;
  int most_ranks;
  // Runs f on `ranks` ranks, each with its transport. An exception of a rank becomes the group's failure. Returns the
  // failure's cause, empty for none. The ranks form islands of size `island`.
  std::string (*run)(int ranks, int island, Seconds timeout, const RankFn& f);
};

// The same for ranks that are threads and take the transport.
struct ThreadWorld {
  const char* name;
  std::string (*open)(int ranks, int island, Seconds timeout, const OwnerFn& f);
};

template <auto make> std::string open_threads(int ranks, int island, Seconds timeout, const OwnerFn& f) {
  return run_threads(ranks, island, timeout, [&](Context context) { f(make(std::move(context))); });
}

template <auto make> std::string threads_over(int ranks, int island, Seconds timeout, const RankFn& f) {
  return open_threads<make>(ranks, island, timeout, [&](std::unique_ptr<Transport> t) { f(*t); });
}

template <auto make> std::string processes_over(int ranks, int island, Seconds timeout, const RankFn& f) {
  const auto ends = ringtape::test::run_processes(ranks, timeout, [&](Context context) {
    context.island = island;
    f(*make(std::move(context)));
  });
  for (const auto& end : ends)
    if (end.status != 0) return end.error.empty() ? concat("a rank ended with status ", end.status) : end.error;
  return "";
}

inline std::string simulated(int ranks, int island, Seconds, const RankFn& f) {
  Topology topology = Topology::one_switch({1e-6, 1e-9});
  if (island > 1) topology.island = island;
  try {
    simulate(ranks, topology, f);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

inline const ThreadWorld kThreadWorlds[] = {
    {"threads", open_threads<threads_transport>},
    {"threads over shm", open_threads<shm_transport>},
    {"threads over tcp", open_threads<tcp_transport>},
};

inline const World kWorlds[] = {
    {"threads", 17, threads_over<threads_transport>},         {"threads over shm", 17, threads_over<shm_transport>},
    {"threads over tcp", 17, threads_over<tcp_transport>},    {"processes over shm", 8, processes_over<shm_transport>},
    {"processes over tcp", 8, processes_over<tcp_transport>}, {"simulated", 17, simulated},
};

// Calls f with a group on each rank; returns the cause of a failure.
template <class F> std::string on_group(const World& world, int ranks, F&& f, int island = 1) {
  return world.run(ranks, island, Seconds(120), [&](Transport& t) {
    Context context = t.context();
    context.store = prefix_store(context.store, "group");
    ProcessGroup group(t.open(std::move(context)));
    f(group);
  });
}

// A valid island size: the smallest divisor.
inline int island_of(int ranks) {
  for (int g = 2; g < ranks; ++g)
    if (ranks % g == 0) return g;
  return 1;
}

}  // namespace ringtape::comm::test

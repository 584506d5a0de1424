#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/transport.h"

// Ranks over each transport that this machine has, for the tests of collectives.
namespace ringtape::comm::test {

using RankFn = std::function<void(Transport&)>;

struct World {
  const char* name;
  // Runs f on `ranks` ranks, the transport of each in hand; an exception that leaves one is the group's failure. Returns the failure's cause,
  // empty for none. The ranks are islands of `island`.
  std::string (*run)(int ranks, int island, Seconds timeout, const RankFn& f);
};

// Ranks that are threads, over any transport that one process can have several of.
template <class Make>
std::string run_threads(int ranks, int island, Seconds timeout, const RankFn& f, Make&& make) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        const std::unique_ptr<Transport> transport = make(Context{r, ranks, store, failure, timeout, island});
        f(*transport);
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return failure->cause();
}

inline const World kWorlds[] = {
    {"threads", [](int ranks, int island, Seconds timeout, const RankFn& f) { return run_threads(ranks, island, timeout, f, threads_transport); }},
};

// Islands as they may be: the smallest divisor.
inline int island_of(int ranks) {
  for (int g = 2; g < ranks; ++g)
    if (ranks % g == 0) return g;
  return 1;
}

}  // namespace ringtape::comm::test

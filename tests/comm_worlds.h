#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/transport.h"

// Ranks over each transport that this machine has, for the tests of collectives.
namespace ringtape::comm::test {

using OwnerFn = std::function<void(std::unique_ptr<Transport>)>;

struct World {
  const char* name;
  // Runs f on `ranks` ranks, each with its transport; an exception that leaves one is the group's failure. Returns the failure's cause, empty for
  // none. The ranks are islands of `island`.
  std::string (*open)(int ranks, int island, Seconds timeout, const OwnerFn& f);

  std::string run(int ranks, int island, Seconds timeout, const std::function<void(Transport&)>& f) const {
    return open(ranks, island, timeout, [&](std::unique_ptr<Transport> t) { f(*t); });
  }
};

// Ranks that are threads, over any transport that one process can have several of.
template <class Make>
std::string run_threads(int ranks, int island, Seconds timeout, const OwnerFn& f, Make&& make) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        f(make(Context{r, ranks, store, failure, timeout, island}));
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return failure->cause();
}

inline const World kWorlds[] = {
    {"threads", [](int ranks, int island, Seconds timeout, const OwnerFn& f) { return run_threads(ranks, island, timeout, f, threads_transport); }},
};

// Islands as they may be: the smallest divisor.
inline int island_of(int ranks) {
  for (int g = 2; g < ranks; ++g)
    if (ranks % g == 0) return g;
  return 1;
}

}  // namespace ringtape::comm::test

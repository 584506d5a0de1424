#pragma once
#include <string>
#include <thread>
#include <vector>

#include "comm/transport.h"

// Ranks that are threads, for tests.
namespace ringtape::comm::test {

// Runs f(context) on each rank. An exception of a rank becomes the group's failure. Returns its cause, empty for none.
// The ranks form islands of size `island`.
template <class F> std::string run_threads(int ranks, int island, Seconds timeout, F&& f) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        f(Context{r, ranks, store, failure, timeout, island});
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return failure->cause();
}

}  // namespace ringtape::comm::test

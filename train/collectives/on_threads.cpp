#include "train/collectives/on_threads.h"

#include <thread>

namespace ringtape {

void run_on_threads(int ranks, const std::function<void(comm::Transport&)>& f) {
  const auto store = comm::memory_store();
  const auto failure = std::make_shared<comm::Failure>();
  const int each = std::max(1, threads() / ranks);
  std::vector<std::thread> all;
  for (int r = 0; r < ranks; ++r)
    all.emplace_back([&, r] {
      try {
        set_threads(each);
        f(*comm::threads_transport({r, ranks, store, failure}));
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& thread : all) thread.join();
  failure->check();
}

}  // namespace ringtape

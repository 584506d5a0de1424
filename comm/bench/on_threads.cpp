#include "comm/bench/on_threads.h"

#include <thread>

#include "core/limits.h"

namespace ringtape::comm {

void run_on_threads(int ranks, const std::function<void(comm::Transport&)>& f) {
  const auto store = comm::memory_store();
  const auto failure = std::make_shared<comm::Failure>();
  const int each = std::max(1, threads() / ranks);
  std::vector<std::thread> all;
  try {
    for (int r = 0; r < ranks; ++r)
      all.push_back(start_thread("a rank", [&, r] {
        try {
          set_threads(each);
          f(*comm::threads_transport({r, ranks, store, failure}));
        } catch (const std::exception& e) {
          failure->raise(e.what());
        }
      }));
  } catch (const Error& e) {  // the ranks that have started wait for it
    failure->raise(e.what());
  }
  for (std::thread& thread : all) thread.join();
  failure->check();
}

}  // namespace ringtape::comm

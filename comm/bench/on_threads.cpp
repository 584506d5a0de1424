#include "comm/bench/on_threads.h"

#include <algorithm>
#include <thread>

#include "comm/transport/transports.h"
#include "core/limits.h"
#include "core/runtime.h"

namespace ringtape::comm {

Device device_for(std::string_view transport, int local_rank) {
  Device out;
  if (transport != "auto") out.type = find_transport(transport).device;
  out.index = out.type == DeviceType::cpu ? 0 : local_rank % runtime(out).device_count();
  return out;
}

void run_on_threads(int ranks, const std::function<void(Context)>& f) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> all;
  try {
    for (int r = 0; r < ranks; ++r)
      all.push_back(start_thread("a rank", [&, r] {
        try {
          f({r, ranks, store, failure});
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

void run_on_threads(int ranks, std::string_view transport, const std::function<void(Transport&)>& f) {
  const int each = std::max(1, threads() / ranks);
  run_on_threads(ranks, [&](Context context) {
    const Device device = device_for(transport, context.rank);
    set_threads(each);
    f(*make_transport(transport, std::move(context), device));
  });
}

}  // namespace ringtape::comm

#include "emulation/barriers.h"

#include <array>
#include <map>
#include <vector>

#include "core/text.h"
#include "emulation/block.h"
#include "emulation/shared.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

struct Named {
  int threads = 0, come = 0;
  std::array<int, kMaxThreads / 32> of_warp{};  // how many have come
  std::vector<int> waiting;
  Stamp stamp;
  Place first;
};
struct Counted {
  int count, pending;
  uint64_t phase = 0;
  struct Waiting {
    int thread, parity;
  };
  std::vector<Waiting> waiting;
  Stamp next, passed;  // of the phase that goes on, and until the end of the one before
};
std::array<Named, 16>& named = *new std::array<Named, 16>;
std::map<uint64_t*, Counted>& counted = *new std::map<uint64_t*, Counted>;

void learn(int thread, const Stamp& stamp) {
  if (checker) checker->acquire(thread, stamp);
}

void pass(Named& b, Place place) {
  for (const int come : b.of_warp)
    if (come % 32 != 0) {
      report("divergent-barrier", place, concat(come % 32, " lanes of a warp come to a barrier of whole warps"));
      abandon();
    }
  for (const int thread : b.waiting) {
    learn(thread, b.stamp);
    if (thread != block.current) make_ready(thread);
  }
  if (traffic) ++traffic->barriers;
  b = {};
}

void end_phase(Counted& b) {
  b.pending = b.count;
  ++b.phase;
  merge(b.passed, b.next);
  b.next.clear();
  std::erase_if(b.waiting, [&](const Counted::Waiting& w) {
    if (int(b.phase % 2) == w.parity) return false;
    learn(w.thread, b.passed);
    make_ready(w.thread);
    return true;
  });
}

void wait(ThreadState state, Place place) {
  Thread& t = block.threads[size_t(block.current)];
  t.state = state;
  t.place = place;
  suspend();
}

}  // namespace

void named_barrier(int number, int threads, bool waits, Place place) {
  const HostCode host;
  Named& b = named[size_t(number) % named.size()];
  if (number < 1 || number > 15 || threads < 1 || threads > kMaxThreads || threads % 32 != 0) {
    report("named-barrier", place,
           concat("barrier ", number, " of ", threads, " threads: 1 to 15, of whole warps, are expected"));
    abandon();
  }
  if (b.come > 0 && b.threads != threads) {
    report("named-barrier", place, concat("barrier ", number, " is one of ", threads, " threads here"), b.first,
           concat("of ", b.threads));
    abandon();
  }
  if (b.come == 0) b.threads = threads, b.first = place;
  if (checker) checker->release(b.stamp);
  ++b.of_warp[size_t(block.current) / 32];
  if (waits) b.waiting.push_back(block.current);
  if (++b.come == b.threads) return pass(b, place);
  if (waits) wait(ThreadState::at_named_barrier, place);
}

void init_mbarrier(uint64_t* barrier, int count, Place place) {
  const HostCode host;
  const bool good = is_shared(barrier) && reinterpret_cast<uintptr_t>(barrier) % 8 == 0 && count > 0;
  if (!good || counted.contains(barrier)) {
    report("mbarrier", place,
           good ? "is initialised twice" : "8 aligned bytes of shared memory and a count are expected");
    abandon();
  }
  if (checker) checker->access(barrier, 8, true, __builtin_return_address(0));
  counted[barrier] = {count, count, 0, {}, {}, {}};
}

void check_barrier(uint64_t* barrier, Place place, const void* pc) {
  if (!counted.contains(barrier)) {
    report("mbarrier", place, "is not initialised");
    abandon();
  }
  if (checker) checker->access(barrier, 8, false, pc);
}

void arrive_with(uint64_t* barrier, const Stamp& stamp) {
  Counted& b = counted.at(barrier);
  merge(b.next, stamp);
  if (--b.pending == 0) end_phase(b);
}

void arrive_at(uint64_t* barrier, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  Stamp stamp;
  if (checker) checker->release(stamp);
  arrive_with(barrier, stamp);
}

void wait_at(uint64_t* barrier, int parity, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  Counted& b = counted.at(barrier);
  if (int(b.phase % 2) != parity) return learn(block.current, b.passed);
  b.waiting.push_back({block.current, parity});
  wait(ThreadState::at_mbarrier, place);
}

void begin_barriers() {
  for (Named& b : named)
    if (b.come > 0) b = {};
  counted.clear();
}

}  // namespace ringtape::emulation

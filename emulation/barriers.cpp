#include "emulation/barriers.h"

#include <algorithm>
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
  size_t number;       // among the block's
  uint64_t phase = 0;  // how many have ended
  int64_t bytes = 0;   // expected and not come yet; below 0: come before they are expected
  bool with_bytes = false, fenced = false;
  int initialised_by = 0;
  struct Waiting {
    int thread, parity;
    Place place;
  };
  std::vector<Waiting> waiting = {};
  Stamp next = {}, passed = {};  // of the phase that goes on, and until the end of the one before
  struct Ended {
    Stamp arrivals;
    bool with_bytes = true;
  };
  struct Early {
    int thread;
    uint32_t moment;
    Place place;
  };
  std::vector<Early> early = {};      // who has passed without a phase, in the first one
  std::vector<uint64_t> waited = {};  // by thread: phases up to the last that it has waited for
  std::array<Ended, 2> ended = {};    // the last phases: who knows of all arrivals knows the end, without bytes
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

// The first phase ends. Who has passed before must have done so whatever the moment: the arrivals come after it.
void check_early(Counted& b) {
  for (const Counted::Early& e : b.early)
    if (b.next.size() <= size_t(e.thread) || b.next[size_t(e.thread)] < e.moment) {
      report(
          "phase", e.place,
          "waits by parity 1 for what was before the first phase, which ends without waiting for that: a moment later "
          "it would be another phase");
      break;
    }
  b.early.clear();
}

void maybe_end_phase(Counted& b) {
  if (b.pending > 0 || b.bytes != 0) return;
  check_early(b);
  b.pending = b.count;
  b.ended = {Counted::Ended{b.next, b.with_bytes}, b.ended[0]};
  b.with_bytes = false;
  ++b.phase;
  merge(b.passed, b.next);
  if (checker) {
    b.passed.resize(std::max(b.passed.size(), size_t(block.size) + b.number + 1));
    b.passed[size_t(block.size) + b.number] = uint32_t(b.phase);
  }
  b.next.clear();
  std::erase_if(b.waiting, [&](const Counted::Waiting& w) {
    if (int(b.phase % 2) == w.parity) return false;
    learn(w.thread, b.passed);
    make_ready(w.thread);
    return true;
  });
}

// Which phase a thread waits for: the first one of this parity after its last. Its parity tells it apart only for who
// knows that all before it have ended, and while the next one goes on; for others a wait may return at once, or never.
void check_parity(Counted& b, int parity, Place place) {
  const int me = block.current;
  uint64_t seen = checker->phases_known(me, b.number);
  for (uint64_t i = 0; i < b.ended.size() && i < b.phase; ++i)
    if (!b.ended[i].with_bytes && checker->knows(me, b.ended[i].arrivals)) seen = std::max(seen, b.phase - i);
  b.waited.resize(size_t(block.size));
  uint64_t& waited = b.waited[size_t(me)];
  if (waited == 0 && seen == 0 && parity == 1 && b.phase == 0) {  // for what was before the first
    Stamp stamp;
    checker->release(stamp);
    b.early.push_back({me, stamp[size_t(me)], place});
    return;
  }
  const uint64_t meant = waited + (int(waited % 2) != parity);
  waited = meant + 1;
  if (seen >= meant && b.phase <= meant + 1) return;
  report("phase", place,
         concat("waits for phase ", meant, " by parity ", parity, ", and knows of the end of ", seen,
                " phases, of which ", b.phase, " have ended: which one it gets depends on the moment"));
  abandon();
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
  const size_t number = counted.size();
  counted[barrier] = {count, count, number};
  counted[barrier].initialised_by = block.current;
}

void fence_mbarriers() {
  const HostCode host;
  for (auto& [barrier, b] : counted) b.fenced |= b.initialised_by == block.current;
}

void check_barrier(uint64_t* barrier, Place place, const void* pc) {
  if (!counted.contains(barrier)) {
    report("mbarrier", place, "is not initialised");
    abandon();
  }
  if (checker) checker->access(barrier, 8, false, pc);
}

void check_engine_barrier(uint64_t* barrier, Place place, const void* pc) {
  check_barrier(barrier, place, pc);
  if (counted.at(barrier).fenced) return;
  report("mbarrier", place,
         "the copy engine uses it, but nobody has called fence_mbarrier_init after its initialisation");
  abandon();
}

void arrive_with(uint64_t* barrier, const Stamp& stamp) {
  Counted& b = counted.at(barrier);
  if (b.pending == 0) {
    report("mbarrier", block.threads[size_t(block.current)].place,
           concat("more than ", b.count, " arrivals in a phase, of which ", b.bytes, " bytes have not come"));
    abandon();
  }
  merge(b.next, stamp);
  --b.pending;
  maybe_end_phase(b);
}

Completion complete_bytes(uint64_t* barrier, uint32_t bytes, const Stamp& stamp) {
  Counted& b = counted.at(barrier);
  const Completion out{b.number, uint32_t(b.phase + 1)};
  merge(b.next, stamp);
  b.bytes -= bytes;
  b.with_bytes = true;
  maybe_end_phase(b);
  return out;
}

void report_missing_bytes() {
  for (const auto& [barrier, b] : counted)
    if (!b.waiting.empty() && b.bytes != 0)
      report("mbarrier-bytes", b.waiting[0].place,
             b.bytes > 0 ? concat("waits for ", b.bytes, " bytes that no copy brings")
                         : concat("waits, but copies have brought ", -b.bytes, " bytes that are not expected"));
}

void arrive_at(uint64_t* barrier, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  block.threads[size_t(block.current)].place = place;
  Stamp stamp;
  if (checker) checker->release(stamp);
  arrive_with(barrier, stamp);
}

void arrive_expecting(uint64_t* barrier, uint32_t bytes, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  block.threads[size_t(block.current)].place = place;
  Counted& b = counted.at(barrier);
  b.bytes += bytes;
  b.with_bytes = true;
  Stamp stamp;
  if (checker) checker->release(stamp);
  arrive_with(barrier, stamp);
}

void wait_at(uint64_t* barrier, int parity, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  Counted& b = counted.at(barrier);
  if (checker) check_parity(b, parity, place);
  if (int(b.phase % 2) != parity) return learn(block.current, b.passed);
  b.waiting.push_back({block.current, parity, place});
  wait(ThreadState::at_mbarrier, place);
}

void order_barriers() {
  if (traffic) ++traffic->barriers;
  for (auto& [barrier, b] : counted) b.early.clear();
}

void begin_barriers() {
  for (Named& b : named)
    if (b.come > 0) b = {};
  counted.clear();
}

}  // namespace ringtape::emulation

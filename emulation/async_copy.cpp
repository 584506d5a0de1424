#include "emulation/async_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "emulation/barriers.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/shared.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

// A copy; or, without `to`, an arrival.
struct Step {
  uint64_t group;
  uint64_t* barrier = nullptr;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0, valid = 0;
  const void* pc = nullptr;
  Stamp stamp = {};
  bool done = false;
};
struct Copies {  // of a thread, in its order
  std::vector<Step> steps;
  uint64_t group = 0;  // the open one
};
std::array<Copies, kMaxThreads>& copies = *new std::array<Copies, kMaxThreads>;
bool used = false;  // in this block

void happen(Step& step) {
  if (step.done) return;
  step.done = true;
  std::memcpy(step.to, step.from, step.valid);
  std::memset(static_cast<char*>(step.to) + step.valid, 0, step.bytes - step.valid);
}

// The first `count` steps. An arrival tells others of the copies before it as they began.
void finish(Copies& mine, size_t count, bool waited) {
  waited &= std::all_of(mine.steps.begin(), mine.steps.end(), [](const Step& s) { return s.to != nullptr; });
  for (size_t i = 0; i < count; ++i) {
    Step& step = mine.steps[i];
    if (!step.to) {
      arrive_with(step.barrier, step.stamp);
      continue;
    }
    happen(step);
    if (checker) checker->end_copy(step.to, step.bytes, waited, step.pc);
  }
  mine.steps.erase(mine.steps.begin(), mine.steps.begin() + std::ptrdiff_t(count));
}

void maybe_happen(Copies& mine) {
  const Schedule order = schedule();
  for (Step& step : mine.steps)
    if (step.to && (order == Schedule::reverse || (order == Schedule::random && random_below(2)))) happen(step);
}

Copies& mine() { return copies[size_t(block.current)]; }

}  // namespace

void copy_async(void* to, const void* from, int bytes, int valid, Place place) {
  const HostCode host;
  const void* const pc = __builtin_return_address(0);
  if (!is_shared(to) || reinterpret_cast<uintptr_t>(to) % size_t(bytes) ||
      reinterpret_cast<uintptr_t>(from) % size_t(bytes)) {
    if (!is_shared(to)) report("copy-address", place, "a copy_async to what is not shared memory");
    else report("misaligned", place, concat("a copy of ", bytes, " bytes to ", describe_shared(to)));
    abandon();
  }
  if (checker) {
    if (valid > 0) checker->access(from, size_t(valid), false, pc);
    checker->begin_copy(to, size_t(bytes), pc);
  }
  if (traffic) count_access(from, size_t(valid));
  if (traffic) count_access(to, size_t(bytes));
  used = true;
  mine().steps.push_back({mine().group, nullptr, to, from, size_t(bytes), size_t(valid), pc});
  maybe_happen(mine());
}

void commit_copies() {
  const HostCode host;
  ++mine().group;
  maybe_happen(mine());
}

void wait_for_copies(int groups) {
  const HostCode host;
  Copies& m = mine();
  const auto outstanding = std::find_if(m.steps.begin(), m.steps.end(),
                                        [&](const Step& s) { return s.group + uint64_t(groups) >= m.group; });
  finish(m, size_t(outstanding - m.steps.begin()), true);
  maybe_happen(m);
}

void arrive_after_copies(uint64_t* barrier, Place place) {
  const HostCode host;
  check_barrier(barrier, place, __builtin_return_address(0));
  Step arrival{mine().group, barrier};
  if (checker) checker->release(arrival.stamp);
  mine().steps.push_back(arrival);
  used = true;
  if (schedule() == Schedule::reverse || (schedule() == Schedule::random && random_below(2)))
    finish(mine(), mine().steps.size(), false);
}

void begin_copies() {
  if (!used) return;
  for (Copies& each : copies) each = {};
  used = false;
}

void finish_copies(int thread) {
  if (used) finish(copies[size_t(thread)], copies[size_t(thread)].steps.size(), false);
}

bool finish_awaited_copies() {
  if (!used) return false;
  bool any = false;
  for (Copies& each : copies) {
    const auto arrival = std::find_if(each.steps.rbegin(), each.steps.rend(), [](const Step& s) { return !s.to; });
    if (arrival == each.steps.rend()) continue;
    finish(each, size_t(each.steps.rend() - arrival), false);
    any = true;
  }
  return any;
}

}  // namespace ringtape::emulation

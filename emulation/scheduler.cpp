#include "emulation/scheduler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/text.h"
#include "emulation/async_copy.h"
#include "emulation/barriers.h"
#include "emulation/block.h"
#include "emulation/bulk_copy.h"
#include "emulation/checker.h"
#include "emulation/faults.h"
#include "emulation/memory.h"
#include "emulation/shared.h"
#include "emulation/traffic.h"
#include "emulation/wgmma.h"

// Kernels access them as threadIdx etc.
extern "C" {
uint3 ringtape_thread_index, ringtape_block_index, ringtape_block_size, ringtape_grid_size;
}

namespace ringtape::emulation {

Block block;
constinit thread_local bool in_kernel = false;
constinit Checker* checker = nullptr;

namespace {

struct Settings {
  Schedule schedule = Schedule::forward;
  uint64_t seed = 1;
  uint64_t grids = 0;  // since the seed was set: each has another order
};

Settings settings_of(std::string_view text) {
  Settings found;
  const std::string_view name = text.substr(0, text.find(':'));
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::random})
    if (name == name_of(schedule)) {
      found.schedule = schedule;
      if (name.size() < text.size()) found.seed = std::strtoull(text.data() + name.size() + 1, nullptr, 10);
      return found;
    }
  detail::fail<UsageError>({"RINGTAPE_EMULATION_SCHEDULE is forward, reverse, random or random:SEED, not ", text});
}

Settings& settings() {
  static Settings s = [] {
    const char* const text = std::getenv("RINGTAPE_EMULATION_SCHEDULE");
    return text && *text ? settings_of(text) : Settings{};
  }();
  return s;
}

// xorshift64*: runs with the same seed are the same.
struct Random {
  uint64_t state = 1;
  uint32_t below(uint32_t n) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return uint32_t(((state * 2685821657736338717ull) >> 32) * n >> 32);
  }
};

struct Scheduler {
  Fiber host;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> free;
  std::vector<uint32_t> order;                   // of the threads
  std::array<uint64_t, kMaxThreads / 64> ready;  // one bit per position in `order`: its thread can run
  uint32_t cursor = 0;
  Schedule schedule;
  Random random;
};
Scheduler& s = *new Scheduler;

void arrange(std::vector<uint32_t>& order, size_t n) {
  order.resize(n);
  std::iota(order.begin(), order.end(), 0u);
  if (s.schedule == Schedule::reverse) std::reverse(order.begin(), order.end());
  if (s.schedule == Schedule::random)
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[s.random.below(uint32_t(i))]);
}

// The next thread that can run, in the schedule's order after the last one; -1 if there is none.
int next_ready() {
  if (s.schedule == Schedule::random) s.cursor = s.random.below(uint32_t(block.size));
  const uint32_t words = uint32_t(block.size + 63) / 64;
  uint32_t word = s.cursor / 64;
  uint64_t bits = s.ready[word] & (~uint64_t{0} << (s.cursor % 64));
  for (uint32_t i = 0; i <= words; ++i) {
    if (bits) {
      const uint32_t position = word * 64 + uint32_t(std::countr_zero(bits));
      s.ready[word] &= ~(uint64_t{1} << (position % 64));
      s.cursor = position + 1 == uint32_t(block.size) ? 0 : position + 1;
      return int(s.order[position]);
    }
    word = word + 1 == words ? 0 : word + 1;
    bits = s.ready[word];
  }
  return -1;
}

void run_threads();

Fiber* take_fiber() {
  if (s.free.empty()) {
    s.fibers.push_back(std::make_unique<Fiber>(run_threads));
    return s.fibers.back().get();
  }
  Fiber* const f = s.free.back();
  s.free.pop_back();
  f->restart();
  return f;
}

void set_current(int thread) {
  Thread& t = block.threads[size_t(thread)];
  block.current = thread;
  block.stack = static_cast<const char*>(t.fiber->lowest());
  t.state = ThreadState::running;
  ringtape_thread_index = t.index;
}

[[noreturn]] void to_host(Fiber* from) {
  block.current = -1;
  Fiber::leave(*from, s.host);
}

void report_deadlock() {
  struct Group {
    ThreadState state;
    const char* text;
    const Thread* one = nullptr;
    int count = 0;
    std::string str() const { return concat(count, text); }
  };
  std::vector<Group> groups = {{ThreadState::at_barrier, " threads wait at the barrier"},
                               {ThreadState::at_named_barrier, " at a numbered barrier"},
                               {ThreadState::at_mbarrier, " at an mbarrier"},
                               {ThreadState::in_warp_operation, " in the warp operation"}};
  for (int i = 0; i < block.size; ++i)
    for (Group& g : groups)
      if (const Thread& t = block.threads[size_t(i)]; t.state == g.state) g.one = &t, ++g.count;
  std::erase_if(groups, [](const Group& g) { return g.count == 0; });
  const std::string text =
      concat("no thread can go on; ", block.size - block.live, " of ", block.size, " have returned: ", groups[0].str());
  if (groups.size() == 1) return report("deadlock", groups[0].one->place, text);
  report("deadlock", groups[0].one->place, text, groups[1].one->place, groups[1].str());
}

[[noreturn]] void deadlock() {
  report_missing_bytes();
  report_deadlock();  // separate function: abandon() runs no destructors
  abandon();
}

// All live threads have arrived: releases them.
void release_barrier() {
  const Thread* first = nullptr;
  for (int i = 0; i < block.size; ++i) {
    Thread& t = block.threads[size_t(i)];
    if (t.state != ThreadState::at_barrier) continue;
    if (!first) first = &t;
    if (t.place == first->place) continue;
    report("divergent-barrier", first->place, "threads of one block meet at different barriers: some", t.place,
           "others");
    abandon();
  }
  if (block.live < block.size)
    report("exited-at-barrier", first->place,
           concat(block.size - block.live, " of ", block.size, " threads have returned before the barrier"));
  for (int i = 0; i < block.size; ++i)
    if (block.threads[size_t(i)].state == ThreadState::at_barrier) make_ready(i);
  block.barrier_result = block.predicates;
  block.at_barrier = block.predicates = 0;
  order_barriers();
  if (checker) checker->block_barrier();
}

// As next_ready(); copies that a thread waits for at an mbarrier happen at the latest when nobody can go on.
int next_or_awaited() {
  int next = next_ready();
  while (next < 0 && (finish_awaited_copies() || finish_awaited_loads())) next = next_ready();
  return next;
}

void finish_current() {
  const int me = block.current;
  finish_copies(me);
  finish_bulk_copies(me);
  finish_wgmma(me);
  block.threads[size_t(me)].state = ThreadState::done;
  const size_t warp = size_t(me) / 32;
  block.present[warp] &= ~(1u << (me % 32));
  --block.live;
  while (block.waiting[warp]) {  // another lane may have waited only for this one
    const uint32_t before = block.waiting[warp];
    for (uint32_t rest = before; rest; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      if (block.waiting[warp] >> lane & 1) complete_warp_operation(int(warp) * 32 + lane);
    }
    if (block.waiting[warp] == before) break;
  }
  if (block.live && block.at_barrier == block.live) release_barrier();
}

// The body of every fiber: runs threads one after the other, until the next one has already started on another fiber.
void run_threads() {
  Fiber::arrived();
  for (;;) {
    (*block.body)();
    Fiber* const mine = block.threads[size_t(block.current)].fiber;
    finish_current();
    const int next = next_or_awaited();
    if (next < 0 && block.live) deadlock();
    if (next >= 0 && block.threads[size_t(next)].state == ThreadState::unstarted) {
      block.threads[size_t(next)].fiber = mine;
      set_current(next);
      continue;
    }
    s.free.push_back(mine);
    if (next < 0) to_host(mine);
    set_current(next);
    Fiber::leave(*mine, *block.threads[size_t(next)].fiber);
  }
}

void begin_block(uint64_t number, dim3 blocks, dim3 threads, size_t shared_bytes) {
  block.number = number;
  block.live = block.size;
  block.at_barrier = block.predicates = 0;
  block.waiting.fill(0);
  block.present.fill(0);
  ringtape_block_index = {unsigned(number % blocks.x), unsigned(number / blocks.x % blocks.y),
                          unsigned(number / blocks.x / blocks.y)};
  if (s.order.size() != size_t(block.size) || s.schedule == Schedule::random) arrange(s.order, size_t(block.size));
  uint3 index = {0, 0, 0};
  for (int i = 0; i < block.size; ++i) {
    Thread& t = block.threads[size_t(i)];
    t.state = ThreadState::unstarted;
    t.index = index;
    block.present[size_t(i) / 32] |= 1u << (i % 32);
    if (++index.x == threads.x) index.x = 0, ++index.y;
    if (index.y == threads.y) index.y = 0, ++index.z;
  }
  for (uint32_t i = 0; i < uint32_t(block.size); ++i) block.threads[s.order[i]].position = uint16_t(i);
  s.ready.fill(0);
  for (int i = 0; i < block.size; ++i) s.ready[size_t(i) / 64] |= uint64_t{1} << (i % 64);
  s.cursor = 0;
  begin_shared(shared_bytes);
  begin_copies();
  begin_bulk_copies();
  begin_wgmma();
  begin_barriers();
  if (checker) checker->begin_block(number, block.size);
}

void run_block(uint64_t number, dim3 blocks, dim3 threads, size_t shared_bytes) {
  begin_block(number, blocks, threads, shared_bytes);
  const int first = next_ready();
  Fiber* const f = take_fiber();
  block.threads[size_t(first)].fiber = f;
  set_current(first);
  Fiber::switch_to(s.host, *f);
  block.current = -1;
  if (block.abandoned) {
    s.free.clear();
    for (const auto& each : s.fibers) s.free.push_back(each.get());
  }
  end_shared();
  if (traffic) count_block();
}

}  // namespace

const char* name_of(Schedule schedule) {
  constexpr const char* names[] = {"forward", "reverse", "random"};
  return names[size_t(schedule)];
}
void set_schedule(Schedule schedule, uint64_t seed) { settings() = {schedule, seed, 0}; }
Schedule schedule() { return settings().schedule; }
bool checked() { return checker != nullptr; }

// In the order of the schedule, or in another one.
static void run_in_order(Schedule schedule, const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes,
                         const std::function<void()>& body) {
  s.order.clear();
  s.schedule = schedule;
  s.random.state = (settings().seed + 1) * 0x9E3779B97F4A7C15ull + ++settings().grids;
  block.kernel = &kernel;
  block.body = &body;
  block.size = int(threads.x * threads.y * threads.z);
  block.abandoned = false;
  block.stack_bytes = Fiber::size();
  ringtape_block_size = {threads.x, threads.y, threads.z};
  ringtape_grid_size = {blocks.x, blocks.y, blocks.z};
  const FaultHandler handler;
  if (checker) checker->begin_grid();
  const size_t count = size_t{blocks.x} * blocks.y * blocks.z;
  std::vector<uint32_t> order;
  if (s.schedule != Schedule::forward) arrange(order, count);
  for (size_t i = 0; i < count && !block.abandoned; ++i)
    run_block(order.empty() ? i : order[i], blocks, threads, shared_bytes);
  verify_redzones();
  block.kernel = nullptr;
}

void run_grid(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& body) {
  constexpr size_t kComparedAtMost = size_t{8} << 20;
  const Schedule now = settings().schedule;
  ++kernel.launches[size_t(now)];
  const auto before = kernel.atomics && !traffic ? contents(kComparedAtMost) : std::nullopt;
  const uint64_t reported = report_count();
  run_in_order(now, kernel, blocks, threads, shared_bytes, body);
  if (!before || report_count() > reported) return;
  const Contents after = *contents(kComparedAtMost);
  restore(*before);
  run_in_order(now == Schedule::reverse ? Schedule::random : Schedule::reverse, kernel, blocks, threads, shared_bytes,
               body);
  for (const auto& [p, bytes] : after)
    if (const auto at = std::mismatch(bytes.begin(), bytes.end(), p); at.first != bytes.end()) {
      report("order-dependent", {},
             concat("kernel ", kernel.name(), ": another order of threads writes other bytes: ", describe(at.second)));
      return;
    }
}

void make_ready(int thread) {
  Thread& t = block.threads[size_t(thread)];
  t.state = ThreadState::ready;
  s.ready[t.position / 64] |= uint64_t{1} << (t.position % 64);
}

void suspend() {
  const int me = block.current, next = next_or_awaited();
  if (next < 0) deadlock();
  Thread& t = block.threads[size_t(next)];
  if (t.state == ThreadState::unstarted) t.fiber = take_fiber();
  set_current(next);
  if (next != me) Fiber::switch_to(*block.threads[size_t(me)].fiber, *t.fiber);
}

void abandon() {
  in_kernel = false;
  block.abandoned = true;
  to_host(block.threads[size_t(block.current)].fiber);
}

uint32_t random_below(uint32_t n) { return s.random.below(n); }

void enter_kernel() { in_kernel = true; }
void leave_kernel() { in_kernel = false; }

int barrier(bool predicate, Place place) {
  const HostCode host;
  Thread& t = block.threads[size_t(block.current)];
  t.place = place;
  t.state = ThreadState::at_barrier;
  block.predicates += predicate;
  if (++block.at_barrier == block.live) release_barrier();
  suspend();
  return block.barrier_result;
}

void trap(const char* what, Place place) {
  in_kernel = false;
  report("trap", place, what);
  abandon();
}

std::string thread_text(int thread) {
  const uint3 i = block.threads[size_t(thread)].index;
  return concat("thread (", i.x, ",", i.y, ",", i.z, ")");
}

std::string block_text(uint64_t number) {
  const uint3 n = ringtape_grid_size;
  return concat("block (", number % n.x, ",", number / n.x % n.y, ",", number / n.x / n.y, ")");
}

std::string running_thread() {
  if (!block.kernel) return "";
  const std::string kernel = concat("kernel ", block.kernel->name());
  if (block.current < 0) return kernel;
  return concat(kernel, ", ", block_text(block.number), ", ", thread_text(block.current));
}

}  // namespace ringtape::emulation

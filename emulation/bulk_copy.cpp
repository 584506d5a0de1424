#include "emulation/bulk_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/text.h"
#include "emulation/arena.h"
#include "emulation/barriers.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/shared.h"
#include "emulation/tensor_map.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

struct Box {
  TensorMap map;
  std::array<int, kMaxRank> at;
  char* shared;

  // f(chunk of 16 bytes in shared memory, the same in global memory, how many of its bytes are inside, from where on)
  template <class F> void for_each_chunk(const F& f) const {
    std::array<int, kMaxRank> i{};
    const size_t row_bytes = map.row_bytes();
    for (size_t row = 0; row < map.rows(); ++row) {
      char* global = map.data;
      bool inside = true;
      for (int d = 1; d < map.rank; ++d) {
        const int64_t place = int64_t{at[size_t(d)]} + i[size_t(d)];
        inside = inside && place >= 0 && place < int64_t{map.dims[d]};
        global += place * int64_t(map.strides[d]);
      }
      for (size_t byte = 0; byte < row_bytes; byte += 16) {
        const int64_t first = (int64_t{at[0]} * map.element) + int64_t(byte), all = int64_t{map.dims[0]} * map.element,
                      from = std::clamp<int64_t>(-first, 0, 16), end = std::clamp<int64_t>(all - first, 0, 16);
        const auto linear = uint32_t(shared + row * row_bytes + byte - arena().shared);
        f(arena().shared + (map.swizzled ? swizzled(linear) : linear), global + first,
          inside && end > from ? size_t(end - from) : 0, size_t(from));
      }
      for (int d = 1; d < map.rank && ++i[size_t(d)] == map.box[d]; ++d) i[size_t(d)] = 0;
    }
  }
};

struct Load {
  Box box;
  uint64_t* barrier;
  Stamp stamp;
  size_t landing;
};
struct Store {
  Box box;
  uint64_t group;
  const void* pc;
  Place place;
  bool done = false;
};
struct Stores {  // of a thread, in its order
  std::vector<Store> all;
  uint64_t group = 0;  // the open one
};
std::vector<Load>& loads = *new std::vector<Load>;
std::array<Stores, kMaxThreads>& stores = *new std::array<Stores, kMaxThreads>;
std::vector<Completion>& come = *new std::vector<Completion>;  // loads of this block
bool used = false;                                             // in this block

// By the schedule, for copies that may happen now.
bool happens_now() { return schedule() == Schedule::reverse || (schedule() == Schedule::random && random_below(2)); }

void finish(const Load& load) {
  load.box.for_each_chunk([](char* shared, const char* global, size_t bytes, size_t from) {
    std::memset(shared, 0, 16);
    std::memcpy(shared + from, global + from, bytes);
  });
  const Completion c = complete_bytes(load.barrier, uint32_t(load.box.map.box_bytes()), load.stamp);
  if (!checker) return;
  checker->landed(load.landing, c.barrier, c.phase);
  come.push_back(c);
}

// Whether a thread has waited for it.
bool awaited(const Completion& c) {
  for (int i = 0; i < block.size; ++i)
    if (checker->phases_known(i, c.barrier) >= c.phase) return true;
  return false;
}

void happen(Store& store) {
  if (store.done) return;
  store.done = true;
  store.box.for_each_chunk([](const char* shared, char* global, size_t bytes, size_t from) {
    std::memcpy(global + from, shared + from, bytes);
  });
}

void count(const Box& box) {
  if (!traffic) return;
  std::vector<std::span<const char>> inside;
  box.for_each_chunk([&](const char*, const char* global, size_t bytes, size_t from) {
    if (bytes > 0) inside.emplace_back(global + from, bytes);
  });
  count_box(inside, box.map.box_bytes());
}

Box box_of(const CUtensorMap* encoded, const void* shared, std::span<const int> at, Place place) {
  const std::optional<TensorMap> map = tensor_map(*encoded);
  const auto refuse = [place](const std::string& what) {
    report("bulk-copy", place, what);
    abandon();
  };
  if (!map) refuse("this is no tensor map");
  if (map->rank != at.size()) refuse(concat("coordinates of ", at.size(), " axes for a tensor of ", int(map->rank)));
  if (!is_shared(shared)) refuse("the other side is not shared memory");
  if (const size_t unit = map->swizzled ? 1024 : 128; reinterpret_cast<uintptr_t>(shared) % unit != 0)
    refuse(concat("a box that starts at ", describe_shared(shared), ", no multiple of ", unit));
  Box out{*map, {}, static_cast<char*>(const_cast<void*>(shared))};
  std::copy(at.begin(), at.end(), out.at.begin());
  return out;
}

}  // namespace

void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, std::span<const int> at, Place place) {
  const HostCode host;
  const void* const pc = __builtin_return_address(0);
  Load load{box_of(map, to, at, place), barrier, {}, 0};
  check_engine_barrier(barrier, place, pc);
  count(load.box);
  if (checker) {
    load.box.for_each_chunk([pc](const char*, const char* global, size_t bytes, size_t from) {
      if (bytes > 0) checker->begin_async_read(global + from, bytes, pc);
    });
    load.landing = checker->begin_landing(to, load.box.map.box_bytes(), pc);
    checker->release(load.stamp);
  }
  used = true;
  if (happens_now()) return finish(load);
  loads.push_back(std::move(load));
}

void store_box(const CUtensorMap* map, const void* from, std::span<const int> at, Place place) {
  const HostCode host;
  const void* const pc = __builtin_return_address(0);
  Stores& mine = stores[size_t(block.current)];
  Store store{box_of(map, from, at, place), mine.group, pc, place};
  count(store.box);
  if (checker)
    store.box.for_each_chunk([pc](const char* shared, const char* global, size_t bytes, size_t first) {
      checker->begin_async_read(shared, 16, pc);
      if (bytes > 0) checker->access(global + first, bytes, true, pc);
    });
  used = true;
  if (happens_now()) happen(store);
  mine.all.push_back(std::move(store));
}

void commit_stores() {
  const HostCode host;
  ++stores[size_t(block.current)].group;
}

void wait_for_stores(int groups) {
  const HostCode host;
  Stores& mine = stores[size_t(block.current)];
  std::erase_if(mine.all, [&](Store& store) {
    if (store.group + uint64_t(groups) >= mine.group) return false;
    happen(store);
    if (checker)
      store.box.for_each_chunk(
          [&](const char* shared, const char*, size_t, size_t) { checker->end_async_read(shared, 16, store.pc); });
    return true;
  });
}

void fence_async_proxy() {
  const HostCode host;
  if (checker) checker->fence_proxy();
}

void begin_bulk_copies() {
  if (!used) return;
  loads.clear();
  come.clear();
  for (Stores& each : stores) each = {};
  used = false;
}

void finish_bulk_copies(int thread) {
  if (!used) return;
  for (const Store& store : stores[size_t(thread)].all)
    report("copy-outlives-block", store.place, "a thread returns before this copy has read its shared memory");
  for (Store& store : stores[size_t(thread)].all) happen(store);
  if (block.live == 1 && !(loads.empty() && std::all_of(come.begin(), come.end(), awaited)))
    report("copy-outlives-block", {}, "a block ends and has not waited for all its loads");
}

bool finish_awaited_loads() {
  if (loads.empty()) return false;
  const size_t which = schedule() == Schedule::random ? random_below(uint32_t(loads.size())) : 0;
  const Load load = std::move(loads[which]);
  loads.erase(loads.begin() + std::ptrdiff_t(which));
  finish(load);
  return true;
}

}  // namespace ringtape::emulation

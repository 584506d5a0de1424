#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/parallel.h"
#include "core/storage.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// Memory for one call, from the arena of the device, so that a warm program does not allocate from the system.
template <class C> class Scratch {
 public:
  Scratch(int64_t elements, Device device) : storage_(size_t(std::max<int64_t>(elements, 1)) * sizeof(C), device) {}
  C* data() const { return static_cast<C*>(storage_.data()); }

 private:
  Storage storage_;
};

// Number of parts of parallel_parts: at most one per thread.
inline int64_t parts_for(int64_t n) { return detail::in_parallel() ? 1 : std::clamp<int64_t>(n, 1, threads()); }

// Calls f(part, range) for each of parts_for(n) parts of [0, n); `part` selects the scratch of the call.
template <class F> void parallel_parts(int64_t n, F&& f) {
  if (n <= 0) return;
  const int64_t parts = parts_for(n);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) f(q, part_of(n, parts, q));
  });
}

// Calls f(part, next) for each of parts_for(n) parts, which take the items of [0, n) from next(), one by one, until it
// returns n: a thread that loses its core for a while has fewer.
template <class F> void parallel_items(int64_t n, F&& f) {
  std::atomic<int64_t> taken = 0;
  const auto next = [&] { return std::min(taken.fetch_add(1, std::memory_order_relaxed), n); };
  parallel_parts(n, [&](int64_t part, Range) { f(part, next); });
}

}  // namespace

RT_ISA_END

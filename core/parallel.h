#pragma once
#include <algorithm>
#include <cstdint>

#include "core/device.h"

namespace ringtape {

namespace detail {
using Part = void (*)(void* context, int64_t part);
void run_parts(int64_t parts, Part f, void* context);  // f(context, 0 .. parts - 1) by the calling thread's team
bool in_parallel();                                    // whether the caller runs inside a parallel_for
}  // namespace detail

// Runs f(begin, end) over a partition of [0, n): at most one part per thread, none smaller than `grain`. Returns when
// all are done and rethrows the first exception of an f. Nested calls run serially.
// f must give the same result for every partition, so that results do not depend on the number of threads. A reduction
// therefore works on chunks of fixed size, never on a thread's share.
template <class F> void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t parts = std::min<int64_t>(threads(), n / std::max<int64_t>(grain, 1));
  if (parts <= 1 || detail::in_parallel()) return f(int64_t{0}, n);
  struct Context {
    F& f;
    int64_t n, parts;
  } context{f, n, parts};
  detail::run_parts(
      parts,
      [](void* p, int64_t part) {
        const auto& c = *static_cast<Context*>(p);
        c.f(c.n * part / c.parts, c.n * (part + 1) / c.parts);
      },
      &context);
}

}  // namespace ringtape

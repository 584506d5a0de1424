#pragma once
#include <span>

#include "comm/transport.h"
#include "core/part.h"

namespace ringtape::comm {

// Carries out a collective over a transport. The operation is the transport's current one; n is the number of ranks, c
// the operation's count.
//   all_reduce      x, y: c          reduce_scatter  x: n c, y: c       all_gather  x: c, y: n c
//   broadcast       y: c, in place   reduce          x: c, y: c, only on the root (elsewhere y is null)
//   gather          x: c, y: n c on the root         scatter  x: n c on the root, y: c         all_to_all  x, y: n c
// A reduce_scatter or all_gather with cuts has part r of x or y at Transport::part(r), which may be empty.
// x is not written to. In place: y may be x for all_reduce, reduce and all_to_all, x may be y + rank c for all_gather
// and gather, y may be x + rank c for reduce_scatter and scatter. avg divides sums by n.
using CollectiveFn = void (*)(Transport& transport, const void* x, void* y);

struct Algorithm {
  const char* name;
  const char* about;  // one line: steps and bytes
  CollectiveFn all_reduce = nullptr, reduce_scatter = nullptr, all_gather = nullptr, broadcast = nullptr,
               reduce = nullptr, gather = nullptr, scatter = nullptr, all_to_all = nullptr,
               barrier = nullptr;  // null: not offered
  CollectiveFn of(Collective kind) const;
  uint32_t id() const;  // for Operation::algorithm
};

// All algorithms. Each is in its own file under algorithm/ and in the list of algorithm.cpp.
std::span<const Algorithm* const> algorithms();
const Algorithm& find_algorithm(std::string_view name);  // throws UsageError with the nearest name

}  // namespace ringtape::comm

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/fold.h"

namespace ringtape::comm {

namespace {

// Each step exchanges the whole buffer with a rank twice as far away as in the step before, and adds it.
void doubling_all_reduce(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Fold fold(team);
  const Operation& op = t.operation();
  const size_t bytes = op.bytes();
  if (team.size == 1) return t.copy(y, x, bytes);
  if (fold.idle()) {
    t.exchange({send_to(fold.partner(), x, bytes)});
    return t.exchange({recv_from(fold.partner(), y, bytes)});
  }
  void* const received = t.scratch(bytes);
  const auto add = [&](bool first, double factor) {  // in the order of the ranks, so that all compute the same bits
    const void* const sources[] = {first ? x : received, first ? received : x};
    t.combine(y, sources, op.count, factor);
    x = y;
  };
  if (fold.paired) {
    t.exchange({recv_from(fold.partner(), received, bytes)});
    add(false, 1.0);
  }
  for (int distance = 1; distance < fold.actors; distance *= 2) {
    const int peer = fold.member_of(fold.actor() ^ distance);
    t.exchange({send_to(peer, x, bytes), recv_from(peer, received, bytes)});
    add(t.rank() < peer, 2 * distance == fold.actors ? last_factor(t) : 1.0);
  }
  if (fold.paired) t.exchange({send_to(fold.partner(), y, bytes)});
}

// Bruck's algorithm: block i of scratch is that of rank + i. If a rank has k blocks, the next step fetches k more from
// the rank k places ahead.
void doubling_all_gather(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype), bytes = op.bytes();
  const int n = t.size(), r = t.rank();
  void* const blocks = t.scratch(bytes * size_t(n));
  t.copy(blocks, x, bytes);
  for (int known = 1; known < n; known *= 2) {
    const size_t some = bytes * size_t(std::min(known, n - known));
    t.exchange({send_to((r + n - known) % n, blocks, some),
                recv_from((r + known) % n, at(blocks, op.count * known, width), some)});
  }
  t.copy(at(y, op.count * r, width), blocks, bytes * size_t(n - r));
  t.copy(y, at(blocks, op.count * (n - r), width), bytes * size_t(r));
}

// Dissemination (Hensgen, Finkel and Manber): after step k a rank knows, directly or through others, that 2^k ranks
// before it have come.
void doubling_barrier(Transport& t, const void*, void*) {
  const int n = t.size(), r = t.rank();
  for (int distance = 1; distance < n; distance *= 2)
    t.exchange({send_to((r + distance) % n, nullptr, 0), recv_from((r + n - distance) % n, nullptr, 0)});
}

}  // namespace

const Algorithm doubling = {
    .name = "doubling",
    .about = "log2 n steps, the whole buffer in each; two more steps if n is not a power of two",
    .all_reduce = doubling_all_reduce,
    .all_gather = doubling_all_gather,
    .barrier = doubling_barrier};

}  // namespace ringtape::comm

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/fold.h"

namespace ringtape::comm {

// Each step exchanges the whole buffer with a rank twice as far away as in the step before, and adds it.
static void doubling_all_reduce(Transport& t, const void* x, void* y) {
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

// Bruck's algorithm: scratch has the parts from this rank's on, around to the first. If a rank has k parts, the next
// step fetches k more from the rank k places ahead.
static void doubling_all_gather(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  const int n = t.size(), r = t.rank();
  const int64_t whole = t.part(n - 1).end, own = t.part(r).begin;
  const auto count = [&](int from, int parts) {  // elements of so many parts from rank `from` on, around to the first
    const int last = from % n + parts - 1;
    return t.part(last % n).end - t.part(from % n).begin + (last < n ? 0 : whole);
  };
  void* const blocks = t.scratch(size_t(whole) * width);
  t.copy(blocks, x, size_t(count(r, 1)) * width);
  for (int known = 1; known < n; known *= 2) {
    const int more = std::min(known, n - known);
    t.exchange(
        {send_to((r + n - known) % n, blocks, size_t(count(r, more)) * width),
         recv_from((r + known) % n, at(blocks, count(r, known), width), size_t(count(r + known, more)) * width)});
  }
  t.copy(at(y, own, width), blocks, size_t(whole - own) * width);
  t.copy(y, at(blocks, whole - own, width), size_t(own) * width);
}

// Dissemination (Hensgen, Finkel and Manber): after step k a rank knows, directly or through others, that 2^k ranks
// before it have come.
static void doubling_barrier(Transport& t, const void*, void*) {
  const int n = t.size(), r = t.rank();
  for (int distance = 1; distance < n; distance *= 2)
    t.exchange({send_to((r + distance) % n, nullptr, 0), recv_from((r + n - distance) % n, nullptr, 0)});
}

const Algorithm doubling = {
    .name = "doubling",
    .about = "log2 n steps, the whole buffer in each; two more steps if n is not a power of two",
    .all_reduce = doubling_all_reduce,
    .all_gather = doubling_all_gather,
    .barrier = doubling_barrier};

}  // namespace ringtape::comm

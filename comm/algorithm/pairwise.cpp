#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

namespace {

// In step s a rank sends to the one s places ahead and receives from the one s places behind; a few steps are on their way at once.
constexpr int kAhead = 4;

void all_to_all(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype), bytes = op.bytes();
  const int n = t.size(), r = t.rank();
  if (x == y && n > 1) {
    void* const copy = t.scratch(bytes * size_t(n));
    t.copy(copy, x, bytes * size_t(n));
    x = copy;
  }
  t.copy(at(y, op.count * r, width), at(x, op.count * r, width), bytes);
  Transport::Ticket tickets[kAhead] = {};
  for (int s = 1; s < n; ++s) {
    if (s > kAhead) t.finish(tickets[s % kAhead]);
    const int to = (r + s) % n, from = (r + n - s) % n;
    const Transfer both[] = {send_to(to, at(x, op.count * to, width), bytes), recv_from(from, at(y, op.count * from, width), bytes)};
    tickets[s % kAhead] = t.start(both);
  }
  if (n > 1) t.finish(tickets[(n - 1) % kAhead]);
}

}  // namespace

const Algorithm pairwise = {.name = "pairwise",
                            .about = "n - 1 messages, one to each rank, in an order that spreads them",
                            .all_to_all = all_to_all};

}  // namespace ringtape::comm

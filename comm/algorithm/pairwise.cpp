#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

static void pairwise_all_to_all(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype), bytes = op.bytes();
  const int n = t.size(), r = t.rank();
  if (x == y && n > 1) {
    void* const copy = t.scratch(bytes * size_t(n));
    t.copy(copy, x, bytes * size_t(n));
    x = copy;
  }
  t.copy(at(y, op.count * r, width), at(x, op.count * r, width), bytes);
  exchange_with_all(
      t, [&](int to) { return send_to(to, at(x, op.count * to, width), bytes); },
      [&](int from) { return recv_from(from, at(y, op.count * from, width), bytes); });
}

const Algorithm pairwise = {.name = "pairwise",
                            .about = "n - 1 messages, one to each rank, in an order that spreads them",
                            .all_to_all = pairwise_all_to_all};

}  // namespace ringtape::comm

#include "comm/algorithm/algorithms.h"

namespace ringtape::comm {

namespace {

struct Ring {
  explicit Ring(Transport& t) : n(t.size()), r(t.rank()), next((r + 1) % n), previous((r + n - 1) % n) {}
  int chunk(int back) const { return ((r - back) % n + n) % n; }  // the one that many places behind this rank's
  const int n, r, next, previous;
};

// n - 1 steps: each rank adds what it receives to its own part and passes the sum on. Part r + 1 is then whole on rank r.
// n - 1 more steps carry the whole parts around. Each rank sends 2 (n - 1) / n of the buffer.
void all_reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  t.copy(y, x, op.bytes());
  const Ring ring(t);
  char* const base = static_cast<char*>(y);
  void* const received = t.scratch(size_t(part_of(op.count, ring.n, 0).size()) * width);
  const double factor = op.op == ReduceOp::avg ? 1.0 / ring.n : 1.0;
  for (int step = 0; step < ring.n - 1; ++step) {
    const Part out = part_of(op.count, ring.n, ring.chunk(step)), in = part_of(op.count, ring.n, ring.chunk(step + 1));
    t.exchange({send_to(ring.next, base + size_t(out.begin) * width, size_t(out.size()) * width),
                recv_from(ring.previous, received, size_t(in.size()) * width)});
    char* const own = base + size_t(in.begin) * width;
    const void* const sources[] = {received, own};
    t.combine(own, sources, in.size(), step == ring.n - 2 ? factor : 1.0);
  }
  for (int step = 0; step < ring.n - 1; ++step) {
    const Part out = part_of(op.count, ring.n, ring.chunk(step - 1)), in = part_of(op.count, ring.n, ring.chunk(step));
    t.exchange({send_to(ring.next, base + size_t(out.begin) * width, size_t(out.size()) * width),
                recv_from(ring.previous, base + size_t(in.begin) * width, size_t(in.size()) * width)});
  }
}

}  // namespace

const Algorithm ring = {.name = "ring", .about = "2 (n - 1) steps, 2 (n - 1) / n of the bytes from each rank, between neighbours alone", .all_reduce = all_reduce};

}  // namespace ringtape::comm

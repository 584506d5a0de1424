// An all-reduce of one's own, written against the transport: the same code runs over threads, shared memory, sockets,
// MPI and NCCL, and in virtual time over a network that is only a formula.
// Prints:
//   the star sums like the ring: yes
//   of 64 ranks, 1 MiB: the star takes 60 times as long as the ring
#include <ringtape/comm/algorithm.h>
#include <ringtape/comm/transport/simulated.h>

#include <cstdio>
#include <vector>

using namespace ringtape;
using namespace ringtape::comm;

// All send to rank 0, which adds and sends the sum to all.
static void star(Transport& t, const void* x, void* y) {
  const size_t bytes = t.operation().bytes();
  if (t.rank() > 0) {
    t.exchange({send_to(0, x, bytes)});
    return t.exchange({recv_from(0, y, bytes)});
  }
  auto* const received = static_cast<std::byte*>(t.scratch(bytes * size_t(t.size() - 1)));
  std::vector<Transfer> in, out;
  std::vector<const void*> sources{x};
  for (int r = 1; r < t.size(); ++r) {
    in.push_back(recv_from(r, received + size_t(r - 1) * bytes, bytes));
    sources.push_back(in.back().data);
    out.push_back(send_to(r, y, bytes));
  }
  t.finish(t.start(in));
  t.combine(y, sources, t.operation().count);
  t.finish(t.start(out));
}

// Seconds that an all-reduce of ones takes; all ranks must get `ranks`.
static double run(CollectiveFn all_reduce, int ranks, int64_t count, bool& right) {
  const Topology network = Topology::one_switch({.alpha = 1e-6, .beta = 1e-9});
  return simulate(ranks, network,
                  [&](Transport& t) {
                    std::vector<float> x(size_t(count), 1), y = x;
                    t.begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = count},
                            Deadline(Seconds(10)));
                    all_reduce(t, x.data(), y.data());
                    t.end();
                    for (const float sum : y) right = right && sum == float(ranks);
                  })
      .seconds;
}

int main() {
  const CollectiveFn ring = find_algorithm("ring").all_reduce;
  bool right = true;
  for (const int ranks : {1, 2, 5}) run(star, ranks, 1000, right), run(ring, ranks, 1000, right);
  std::printf("the star sums like the ring: %s\n", right ? "yes" : "no");
  const double a = run(star, 64, 1 << 18, right), b = run(ring, 64, 1 << 18, right);
  std::printf("of 64 ranks, 1 MiB: the star takes %.0f times as long as the ring\n", a / b);
  return right ? 0 : 1;
}

#include "comm/algorithm/fixed_order.h"

#include "comm/algorithm/algorithms.h"

namespace ringtape::comm {

namespace {

// Sends part(p) of `x` to each rank p and combines the parts for this rank in the order of the ranks, into `y`, or into
// scratch if `y` is null. Returns the address of the result.
template <class Cut> void* sum_own_part(Transport& t, const void* x, void* y, Cut&& part) {
  const size_t width = size_of(t.operation().dtype);
  const int n = t.size(), r = t.rank();
  const Part own = part(r);
  void* const received = t.scratch(size_t(own.size()) * size_t(n) * width);
  std::vector<const void*> sources(static_cast<size_t>(n));
  for (int from = 0; from < n; ++from)
    sources[size_t(from)] = from == r ? at(x, own.begin, width) : at(received, own.size() * from, width);
  exchange_with_all(
      t,
      [&](int to) {
        const Part p = part(to);
        return send_to(to, at(x, p.begin, width), size_t(p.size()) * width);
      },
      [&](int from) { return recv_from(from, at(received, own.size() * from, width), size_t(own.size()) * width); });
  void* const spare = at(received, own.size() * r, width);  // nothing is received there
  if (!y) y = spare;
  combine_all(t, y, sources, own.size(), spare);
  return y;
}

// Bytes processed at a time, so that scratch stays small and the parts stay in the cache.
constexpr size_t kFixedOrderBlockBytes = 4 << 20;

template <class F> void for_each_block(Transport& t, F&& f) {
  const Operation& op = t.operation();
  const int blocks = int(std::max<size_t>(1, (op.bytes() + kFixedOrderBlockBytes - 1) / kFixedOrderBlockBytes));
  for (int i = 0; i < blocks; ++i) f(part_of(op.count, blocks, i));
}

}  // namespace

void fixed_order_all_reduce(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  const int n = t.size(), r = t.rank();
  for_each_block(t, [&](Part block) {
    const auto part = [&](int rank) { return part_of(block.size(), n, rank); };
    const auto place = [&](int rank) { return at(y, block.begin + part(rank).begin, width); };
    const auto bytes = [&](int rank) { return size_t(part(rank).size()) * width; };
    sum_own_part(t, at(x, block.begin, width), place(r), part);
    exchange_with_all(
        t, [&](int to) { return send_to(to, place(r), bytes(r)); },
        [&](int from) { return recv_from(from, place(from), bytes(from)); });
  });
}

void fixed_order_reduce_scatter(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype), bytes = t.operation().bytes() * size_t(t.size());
  const int blocks = int(std::max<size_t>(1, (bytes + kFixedOrderBlockBytes - 1) / kFixedOrderBlockBytes));
  for (int i = 0; i < blocks; ++i) {
    const auto block = [&](int rank) {
      const Part all = t.part(rank), some = part_of(all.size(), blocks, i);
      return Part{all.begin + some.begin, all.begin + some.end};
    };
    sum_own_part(t, x, at(y, block(t.rank()).begin - t.part(t.rank()).begin, width), block);
  }
}

void fixed_order_reduce(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  const int n = t.size(), r = t.rank(), root = t.operation().root;
  for_each_block(t, [&](Part block) {
    const auto part = [&](int rank) { return part_of(block.size(), n, rank); };
    void* const place = r == root ? at(y, block.begin + part(r).begin, width) : nullptr;
    void* const sum = sum_own_part(t, at(x, block.begin, width), place, part);
    if (r != root) return t.exchange({send_to(root, sum, size_t(part(r).size()) * width)});
    std::vector<Transfer> transfers;
    for (int s = 1; s < n; ++s) {
      const Part p = part((r + s) % n);
      transfers.push_back(recv_from((r + s) % n, at(y, block.begin + p.begin, width), size_t(p.size()) * width));
    }
    t.finish(t.start(transfers));
  });
}

const Algorithm fixed_order = {
    .name = "fixed_order",
    .about = "2 (n - 1) messages, 2 (n - 1) / n of the bytes from each rank; sums in the order of the ranks",
    .all_reduce = fixed_order_all_reduce,
    .reduce_scatter = fixed_order_reduce_scatter,
    .reduce = fixed_order_reduce};

}  // namespace ringtape::comm

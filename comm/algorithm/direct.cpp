#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/fixed_order.h"

namespace ringtape::comm {

namespace {

// Of a CPU: a block stays in a core's cache from when it is written for this rank until it is copied to the others. On
// a GPU each block would be launches of its own.
constexpr size_t kSharedBlockBytes = 128 << 10;

// One buffer of each rank that all ranks can access. If the transport copied this rank's buffer, the data that others
// wrote is copied back.
class Shared {
 public:
  Shared(Transport& t, const void* data, size_t bytes)
      : t_(t), data_(const_cast<void*>(data)), all_(t.share(data_, bytes)) {}
  explicit operator bool() const { return !all_.empty(); }
  void* of(int rank, int64_t i = 0) const { return at(all_[size_t(rank)], i, size_of(t_.operation().dtype)); }
  void fence() { t_.fence(); }
  void bring_back(size_t bytes) { t_.copy(data_, all_[size_t(t_.rank())], bytes); }

 private:
  Transport& t_;
  void* const data_;
  const std::vector<void*> all_;
};

// Combines [from, to) of all ranks' shared buffers into y, which starts at `from`, and calls f(begin, count, combined)
// for each block.
template <class F> void combine_blocks(Transport& t, const Shared& shared, Part range, void* y, F&& f) {
  const size_t width = size_of(t.operation().dtype);
  const bool whole = t.device().type != DeviceType::cpu;
  const int64_t block = std::max<int64_t>(1, whole ? range.size() : int64_t(kSharedBlockBytes / width));
  void* const spare = t.size() > kMaxSources ? t.scratch(size_t(block) * width) : nullptr;
  std::vector<const void*> sources(static_cast<size_t>(t.size()));
  for (int64_t i = range.begin; i < range.end; i += block) {
    const int64_t count = std::min(block, range.end - i);
    for (int r = 0; r < t.size(); ++r) sources[size_t(r)] = shared.of(r, i);
    void* const combined = at(y, i - range.begin, width);
    combine_all(t, combined, sources, count, spare);
    f(i, size_t(count) * width, combined);
  }
}

// Each rank combines its part of all buffers, in the order of the ranks, and writes the result to all.
void direct_all_reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  t.copy(y, x, op.bytes());
  Shared shared(t, y, op.bytes());
  if (!shared) return fixed_order_all_reduce(t, y, y);
  const int n = t.size(), r = t.rank();
  const Part own = part_of(op.count, n, r);
  combine_blocks(t, shared, own, shared.of(r, own.begin), [&](int64_t i, size_t bytes, const void* sum) {
    for (int s = 1; s < n; ++s) t.copy(shared.of((r + s) % n, i), sum, bytes);
  });
  shared.fence();
  shared.bring_back(op.bytes());
}

void direct_reduce_scatter(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  Shared shared(t, x, size_t(t.part(t.size() - 1).end) * width);
  if (!shared) return fixed_order_reduce_scatter(t, x, y);
  combine_blocks(t, shared, t.part(t.rank()), y, [](int64_t, size_t, const void*) {});
  shared.fence();
}

// Each rank combines its part into the root's buffer.
void direct_reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const bool root = t.rank() == op.root;
  if (root) t.copy(y, x, op.bytes());
  Shared shared(t, root ? y : x, op.bytes());
  if (!shared) return fixed_order_reduce(t, root ? y : x, y);
  const Part own = part_of(op.count, t.size(), t.rank());
  combine_blocks(t, shared, own, shared.of(op.root, own.begin), [](int64_t, size_t, const void*) {});
  shared.fence();
  if (root) shared.bring_back(op.bytes());
}

void direct_all_gather(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  const int n = t.size(), r = t.rank();
  const auto place = [&](int rank) { return at(y, t.part(rank).begin, width); };
  const auto bytes = [&](int rank) { return size_t(t.part(rank).size()) * width; };
  t.copy(place(r), x, bytes(r));
  Shared shared(t, place(r), bytes(r));
  if (!shared) return ring.all_gather(t, x, y);
  for (int s = 1; s < n; ++s) t.copy(place((r + s) % n), shared.of((r + s) % n), bytes((r + s) % n));
  shared.fence();
}

void direct_broadcast(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const bool root = t.rank() == op.root;
  Shared shared(t, root ? y : nullptr, root ? op.bytes() : 0);
  if (!shared) return ring.broadcast(t, x, y);
  if (!root) t.copy(y, shared.of(op.root), op.bytes());
  shared.fence();
}

void direct_gather(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  Shared shared(t, x, op.bytes());
  if (!shared) return tree.gather(t, x, y);
  if (t.rank() == op.root)
    for (int r = 0; r < t.size(); ++r)
      t.copy(at(y, op.count * r, size_of(op.dtype)), r == op.root ? x : shared.of(r), op.bytes());
  shared.fence();
}

void direct_scatter(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const bool root = t.rank() == op.root;
  Shared shared(t, root ? x : nullptr, root ? op.bytes() * size_t(t.size()) : 0);
  if (!shared) return tree.scatter(t, x, y);
  t.copy(y, root ? at(x, op.count * t.rank(), size_of(op.dtype)) : shared.of(op.root, op.count * t.rank()), op.bytes());
  shared.fence();
}

void direct_all_to_all(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const int n = t.size(), r = t.rank();
  const size_t all = op.bytes() * size_t(n);
  Shared shared(t, x, all);
  if (!shared) return pairwise.all_to_all(t, x, y);
  void* const to = x == y ? t.scratch(all) : y;  // in place: others still read it
  for (int s = 0; s < n; ++s) {
    const int from = (r + s) % n;
    t.copy(at(to, op.count * from, size_of(op.dtype)), shared.of(from, op.count * r), op.bytes());
  }
  shared.fence();
  t.copy(y, to, all);
}

void direct_barrier(Transport& t, const void* x, void* y) {
  Shared shared(t, nullptr, 0);
  if (!shared) return doubling.barrier(t, x, y);
  shared.fence();
}

}  // namespace

const Algorithm direct = {
    .name = "direct",
    .about = "in shared memory: 2 fences, each rank sums its part; otherwise by messages, with the sums of fixed_order",
    .all_reduce = direct_all_reduce,
    .reduce_scatter = direct_reduce_scatter,
    .all_gather = direct_all_gather,
    .broadcast = direct_broadcast,
    .reduce = direct_reduce,
    .gather = direct_gather,
    .scatter = direct_scatter,
    .all_to_all = direct_all_to_all,
    .barrier = direct_barrier};

}  // namespace ringtape::comm

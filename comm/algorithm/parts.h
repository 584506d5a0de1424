#pragma once
#include "comm/algorithm.h"
#include "kernels/combine.h"

// Common parts of the algorithms.
namespace ringtape::comm {

// The address of element i of a buffer. The buffer may be null: the simulator also runs without data.
inline void* at(const void* base, int64_t i, size_t width) {
  return reinterpret_cast<void*>(uintptr_t(base) + size_t(i) * width);
}

// Ranks of a transport that work together, `stride` apart; members are counted from 0.
struct Team {
  explicit Team(const Transport& t) : size(t.size()), member(t.rank()) {}
  Team(int first, int stride, int size, int member) : first(first), stride(stride), size(size), member(member) {}
  int wrap(int i) const { return (i % size + size) % size; }
  int rank_of(int i) const { return first + stride * wrap(i); }
  int next() const { return rank_of(member + 1); }
  int previous() const { return rank_of(member - 1); }

  int first = 0, stride = 1, size, member;
};

// Large messages are sent in pieces, so that one is combined while the next is being sent. A piece fits into a core's
// cache.
constexpr size_t kPiece = 128 << 10;
inline int pieces_of(int64_t count, size_t width) {
  return int(std::max<size_t>(1, (size_t(count) * width + kPiece - 1) / kPiece));
}

// The factor of the last combination of an operation: 1 / n for avg.
inline double last_factor(const Transport& t) { return t.operation().op == ReduceOp::avg ? 1.0 / t.size() : 1.0; }

// y = all ranks' `sources` combined, as the last combination of an operation; y may be one of them. If there are more
// sources than one call of the kernel takes, several calls are needed, and the first would overwrite what a later one
// reads. They then use `spare`, which has room for `count` elements.
inline void combine_all(Transport& t, void* y, std::span<const void* const> sources, int64_t count, void* spare) {
  if (sources.size() <= kMaxSources) return t.combine(y, sources, count, last_factor(t));
  t.combine(spare, sources, count, last_factor(t));
  t.copy(y, spare, size_t(count) * size_of(t.operation().dtype));
}

// The largest power of two <= n.
inline int power_below(int n) {
  int p = 1;
  while (2 * p <= n) p *= 2;
  return p;
}

// Sends `sent` elements to rank `peer` and receives `received` from it, in pieces; calls arrived(begin, count) for each
// received piece. Either number may be 0.
template <class F>
void exchange_pieces(Transport& t, int peer, const void* from, int64_t sent, void* to, int64_t received, F&& arrived) {
  const size_t width = size_of(t.operation().dtype);
  const int sends = sent > 0 ? pieces_of(sent, width) : 0, recvs = received > 0 ? pieces_of(received, width) : 0;
  std::vector<Transport::Ticket> tickets;
  for (int i = 0; i < std::max(sends, recvs); ++i) {
    Transfer transfers[2];
    size_t n = 0;
    if (i < sends) {
      const Part out = part_of(sent, sends, i);
      transfers[n++] = send_to(peer, at(from, out.begin, width), size_t(out.size()) * width);
    }
    if (i < recvs) {
      const Part in = part_of(received, recvs, i);
      transfers[n++] = recv_from(peer, at(to, in.begin, width), size_t(in.size()) * width);
    }
    tickets.push_back(t.start({transfers, n}));
  }
  for (int i = 0; i < std::max(sends, recvs); ++i) {
    t.finish(tickets[size_t(i)]);
    if (i >= recvs) continue;
    const Part in = part_of(received, recvs, i);
    arrived(in.begin, in.size());
  }
}
inline void nothing(int64_t, int64_t) {}

// Every rank exchanges data with every other: in step s it sends to the rank s places ahead and receives from the rank
// s places behind, which spreads the messages. Several steps run at once. out(to) and in(from) return the transfers.
template <class Out, class In> void exchange_with_all(Transport& t, Out&& out, In&& in) {
  constexpr int kAhead = 4;
  const int n = t.size(), r = t.rank();
  Transport::Ticket tickets[kAhead] = {};
  for (int s = 1; s < n; ++s) {
    if (s > kAhead) t.finish(tickets[s % kAhead]);
    const Transfer both[] = {out((r + s) % n), in((r + n - s) % n)};
    tickets[s % kAhead] = t.start(both);
  }
  if (n > 1) t.finish(tickets[(n - 1) % kAhead]);
}

}  // namespace ringtape::comm

#include "comm/algorithm/ring.h"

#include "comm/algorithm/algorithms.h"

namespace ringtape::comm {

namespace {

// The messages of a ring: `steps` rounds of `pieces` each. Message i goes on with what came as message i - pieces, and is started as soon as
// that has been dealt with, so that the link never waits for a whole part.
template <class Message, class Arrived>
void pass(Transport& t, int steps, int pieces, Message&& message, Arrived&& arrived) {
  std::vector<Transport::Ticket> tickets(static_cast<size_t>(pieces));
  const int64_t all = int64_t(steps) * pieces;
  const auto start = [&](int64_t i) {
    if (i < all) tickets[size_t(i % pieces)] = t.start(message(int(i / pieces), int(i % pieces)));
  };
  for (int64_t i = 0; i < pieces; ++i) start(i);
  for (int64_t i = 0; i < all; ++i) {
    t.finish(tickets[size_t(i % pieces)]);
    arrived(int(i / pieces), int(i % pieces));
    start(i + pieces);
  }
}

// Where the pieces of a buffer's parts lie.
struct Pieces {
  Pieces(const Transport& t, const Team& team, int64_t count)
      : width(size_of(t.operation().dtype)),
        count(count),
        members(team.size),
        largest(part_of(count, members, 0).size()),
        pieces(pieces_of(largest, width)) {}
  Part operator()(int part, int piece) const {
    const Part whole = part_of(count, members, part), p = part_of(whole.size(), pieces, piece);
    return {whole.begin + p.begin, whole.begin + p.end};
  }
  size_t bytes(Part p) const { return size_t(p.size()) * width; }

  size_t width;
  int64_t count;
  int members;
  int64_t largest;  // elements of a part
  int pieces;       // of each part
};

void all_reduce(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Operation& op = t.operation();
  const Part own = part_of(op.count, team.size, team.member);
  ring_reduce_scatter(t, team, x, at(y, own.begin, size_of(op.dtype)), op.count, last_factor(t));
  ring_all_gather(t, team, y, op.count);
}

void reduce_scatter(Transport& t, const void* x, void* y) {
  const Team team(t);
  ring_reduce_scatter(t, team, x, y, t.operation().count * team.size, last_factor(t));
}

void all_gather(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Operation& op = t.operation();
  t.copy(at(y, op.count * team.member, size_of(op.dtype)), x, op.bytes());
  ring_all_gather(t, team, y, op.count * team.size);
}

// A chain from the root around; every rank passes a piece on while the next one comes.
void broadcast(Transport& t, const void*, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  const int n = t.size(), place = (t.rank() - op.root + n) % n, next = (t.rank() + 1) % n, previous = (t.rank() + n - 1) % n;
  const int pieces = pieces_of(op.count, width);
  std::vector<Transport::Ticket> tickets;
  const auto message = [&](Transfer::Way way, int peer, int i) {
    const Part p = part_of(op.count, pieces, i);
    const Transfer transfer{way, peer, at(y, p.begin, width), size_t(p.size()) * width};
    return t.start({&transfer, 1});
  };
  if (place > 0)
    for (int i = 0; i < pieces; ++i) tickets.push_back(message(Transfer::Way::recv, previous, i));
  Transport::Ticket last = 0;
  for (int i = 0; i < pieces; ++i) {
    if (place > 0) t.finish(tickets[size_t(i)]);
    if (place < n - 1) last = message(Transfer::Way::send, next, i);
  }
  if (place < n - 1) t.finish(last);
}

// A chain to the root, which each rank adds its own to on the way.
void reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  const int n = t.size(), place = (t.rank() - op.root + n) % n, next = (t.rank() + n - 1) % n, previous = (t.rank() + 1) % n;
  const int pieces = pieces_of(op.count, width);
  if (n == 1) return t.copy(y, x, op.bytes());
  void* const received = place == n - 1 ? nullptr : t.scratch(op.bytes());
  std::vector<Transport::Ticket> tickets;
  const auto message = [&](Transfer::Way way, int peer, const void* data, int i) {
    const Part p = part_of(op.count, pieces, i);
    const Transfer transfer{way, peer, at(data, p.begin, width), size_t(p.size()) * width};
    return t.start({&transfer, 1});
  };
  if (place < n - 1)
    for (int i = 0; i < pieces; ++i) tickets.push_back(message(Transfer::Way::recv, previous, received, i));
  Transport::Ticket last = 0;
  for (int i = 0; i < pieces; ++i) {
    if (place < n - 1) {
      t.finish(tickets[size_t(i)]);
      const Part p = part_of(op.count, pieces, i);
      const void* const sources[] = {at(received, p.begin, width), at(x, p.begin, width)};
      t.combine(at(place == 0 ? y : received, p.begin, width), sources, p.size(), place == 0 ? last_factor(t) : 1.0);
    }
    if (place > 0) last = message(Transfer::Way::send, next, place < n - 1 ? received : x, i);
  }
  if (place > 0) t.finish(last);
}

}  // namespace

// n - 1 steps: each member adds what it receives to its own part and passes the sum on. Sums in the making lie in scratch: message i in
// slot i modulo 2 pieces, where it stays until it has been sent on.
void ring_reduce_scatter(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor) {
  const Pieces piece(t, team, count);
  const int steps = team.size - 1, next = team.rank_of(team.member + 1), previous = team.rank_of(team.member - 1);
  const Part own = part_of(count, team.size, team.member);
  if (steps == 0) return t.copy(y, x, piece.bytes(own));
  const int64_t slot_size = (piece.largest + piece.pieces - 1) / piece.pieces;
  void* const slots = t.scratch(size_t(2 * piece.pieces * slot_size) * piece.width);
  const auto slot = [&](int step, int i) { return at(slots, ((step % 2) * piece.pieces + i) * slot_size, piece.width); };
  Transfer both[2];
  pass(
      t, steps, piece.pieces,
      [&](int step, int i) -> std::span<const Transfer> {
        const Part out = piece(team.wrap(team.member - step - 1), i), in = piece(team.wrap(team.member - step - 2), i);
        both[0] = send_to(next, step == 0 ? at(x, out.begin, piece.width) : slot(step - 1, i), piece.bytes(out));
        both[1] = recv_from(previous, slot(step, i), piece.bytes(in));
        return both;
      },
      [&](int step, int i) {
        const Part in = piece(team.wrap(team.member - step - 2), i);
        const bool last = step == steps - 1;
        const void* const sources[] = {slot(step, i), at(x, in.begin, piece.width)};
        void* const to = last ? at(y, in.begin - own.begin, piece.width) : slot(step, i);
        t.combine(to, sources, in.size(), last ? factor : 1.0);
      });
}

// n - 1 steps that carry the whole parts around.
void ring_all_gather(Transport& t, const Team& team, void* y, int64_t count) {
  const Pieces piece(t, team, count);
  const int next = team.rank_of(team.member + 1), previous = team.rank_of(team.member - 1);
  Transfer both[2];
  pass(
      t, team.size - 1, piece.pieces,
      [&](int step, int i) -> std::span<const Transfer> {
        const Part out = piece(team.wrap(team.member - step), i), in = piece(team.wrap(team.member - step - 1), i);
        both[0] = send_to(next, at(y, out.begin, piece.width), piece.bytes(out));
        both[1] = recv_from(previous, at(y, in.begin, piece.width), piece.bytes(in));
        return both;
      },
      [](int, int) {});
}

const Algorithm ring = {.name = "ring",
                        .about = "2 (n - 1) steps, 2 (n - 1) / n of the bytes from each rank, between neighbours alone",
                        .all_reduce = all_reduce,
                        .reduce_scatter = reduce_scatter,
                        .all_gather = all_gather,
                        .broadcast = broadcast,
                        .reduce = reduce};

}  // namespace ringtape::comm

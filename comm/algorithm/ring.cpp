#include "comm/algorithm/ring.h"

#include "comm/algorithm/algorithms.h"

namespace ringtape::comm {

namespace {

// This many pieces of each part are in flight at a time, and make all their steps before the next pieces start, so that
// the memory of a piece is still in the cache when it is used again. The number is small enough for that, and large
// enough to keep the link and a reader on another core busy.
constexpr int kLanes = 4;

// The messages of a ring's pieces: lane i carries pieces i, i + kLanes, ... one after the other, each for `steps`
// steps. The next message of a lane is started as soon as the data of the last one has been processed.
template <class Message, class Arrived>
void pass(Transport& t, int steps, int pieces, Message&& message, Arrived&& arrived) {
  const int lanes = std::min(kLanes, pieces);
  std::vector<Transport::Ticket> tickets(static_cast<size_t>(lanes));
  const int64_t all = int64_t(steps) * lanes * ((pieces + lanes - 1) / lanes);
  const auto each = [&](int64_t i, auto&& f) {
    if (i >= all) return;
    const int lane = int(i % lanes), piece = int(i / lanes / steps) * lanes + lane;
    if (piece < pieces) f(tickets[size_t(lane)], int(i / lanes % steps), piece);
  };
  const auto start = [&](Transport::Ticket& ticket, int step, int piece) { ticket = t.start(message(step, piece)); };
  for (int64_t i = 0; i < lanes; ++i) each(i, start);
  for (int64_t i = 0; i < all; ++i) {
    each(i, [&](Transport::Ticket ticket, int step, int piece) {
      t.finish(ticket);
      arrived(step, piece);
    });
    each(i + lanes, start);
  }
}

// The positions of the pieces of a buffer's parts: one part per member, by part_of(); without a count, those of the
// operation, whose ranks are the members.
struct Pieces {
  Pieces(const Transport& t, const Team& team, int64_t count)
      : width(size_of(t.operation().dtype)), count(count), members(team.size),
        largest(part_of(count, members, 0).size()), pieces(pieces_of(largest, width)) {}
  explicit Pieces(const Transport& t)
      : width(size_of(t.operation().dtype)), operation(&t), members(t.size()), largest(t.operation().count),
        pieces(pieces_of(largest, width)) {}
  Part whole(int part) const { return operation ? operation->part(part) : part_of(count, members, part); }
  Part operator()(int part, int piece) const {
    const Part all = whole(part), p = part_of(all.size(), pieces, piece);
    return {all.begin + p.begin, all.begin + p.end};
  }
  size_t bytes(Part p) const { return size_t(p.size()) * width; }

  size_t width;
  int64_t count = 0;
  const Transport* operation = nullptr;
  int members;
  int64_t largest;  // elements of a part
  int pieces;       // of each part
};

// The first half of a ring's all-reduce, n - 1 steps: each member adds the received data to its own and forwards the
// sum. Partial sums are in scratch until they have been forwarded.
class RingReduction {
 public:
  RingReduction(Transport& t, const Team& team, const Pieces& piece, const void* x, void* y, double factor)
      : t_(t), team_(team), piece_(piece), x_(x), y_(y), factor_(factor), slots_(t.scratch(2 * kLanes * slot_bytes())) {
  }

  std::span<const Transfer> message(int step, int i, Transfer (&both)[2]) const {
    const Part out = piece_(team_.wrap(team_.member - step - 1), i), in = incoming(step, i);
    both[0] = send_to(team_.next(), step == 0 ? at(x_, out.begin, piece_.width) : slot(step - 1, i), piece_.bytes(out));
    both[1] = recv_from(team_.previous(), slot(step, i), piece_.bytes(in));
    return both;
  }
  void arrived(int step, int i) const {
    const Part in = incoming(step, i);
    const bool last = step == team_.size - 2;
    const void* const sources[] = {slot(step, i), at(x_, in.begin, piece_.width)};
    const int64_t own = piece_.whole(team_.member).begin;
    t_.combine(last ? at(y_, in.begin - own, piece_.width) : slot(step, i), sources, in.size(), last ? factor_ : 1.0);
  }

 private:
  Part incoming(int step, int i) const { return piece_(team_.wrap(team_.member - step - 2), i); }
  size_t slot_bytes() const { return size_t((piece_.largest + piece_.pieces - 1) / piece_.pieces) * piece_.width; }
  void* slot(int step, int i) const { return at(slots_, step % 2 * kLanes + i % kLanes, slot_bytes()); }

  Transport& t_;
  const Team& team_;
  const Pieces& piece_;
  const void* const x_;
  void* const y_;  // only this member's part
  const double factor_;
  void* const slots_;
};

// The second half, n - 1 steps that send the complete parts around the ring.
std::span<const Transfer> gather_message(const Team& team, const Pieces& piece, void* y, int step, int i,
                                         Transfer (&both)[2]) {
  const Part out = piece(team.wrap(team.member - step), i), in = piece(team.wrap(team.member - step - 1), i);
  both[0] = send_to(team.next(), at(y, out.begin, piece.width), piece.bytes(out));
  both[1] = recv_from(team.previous(), at(y, in.begin, piece.width), piece.bytes(in));
  return both;
}

void ring_all_reduce(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Pieces piece(t, team, t.operation().count);
  const int half = team.size - 1;
  if (half == 0) return t.copy(y, x, t.operation().bytes());
  const Part own = part_of(piece.count, team.size, team.member);
  const RingReduction reduction(t, team, piece, x, at(y, own.begin, piece.width), last_factor(t));
  Transfer both[2];
  pass(
      t, 2 * half, piece.pieces,
      [&](int step, int i) {
        return step < half ? reduction.message(step, i, both) : gather_message(team, piece, y, step - half, i, both);
      },
      [&](int step, int i) {
        if (step < half) reduction.arrived(step, i);
      });
}

void reduce_scatter(Transport& t, const Team& team, const Pieces& piece, const void* x, void* y, double factor) {
  if (team.size == 1) return t.copy(y, x, piece.bytes(piece.whole(0)));
  const RingReduction reduction(t, team, piece, x, y, factor);
  Transfer both[2];
  pass(
      t, team.size - 1, piece.pieces, [&](int step, int i) { return reduction.message(step, i, both); },
      [&](int step, int i) { reduction.arrived(step, i); });
}

void all_gather(Transport& t, const Team& team, const Pieces& piece, void* y) {
  Transfer both[2];
  pass(
      t, team.size - 1, piece.pieces, [&](int step, int i) { return gather_message(team, piece, y, step, i, both); },
      [](int, int) {});
}

void ring_reduce_scatter(Transport& t, const void* x, void* y) {
  reduce_scatter(t, Team(t), Pieces(t), x, y, last_factor(t));
}

void ring_all_gather(Transport& t, const void* x, void* y) {
  const Pieces piece(t);
  const Part own = t.part(t.rank());
  t.copy(at(y, own.begin, piece.width), x, piece.bytes(own));
  all_gather(t, Team(t), piece, y);
}

// A chain from the root around the ring; every rank forwards a piece while it receives the next one.
void ring_broadcast(Transport& t, const void*, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  const int n = t.size(), place = (t.rank() - op.root + n) % n, next = (t.rank() + 1) % n,
            previous = (t.rank() + n - 1) % n;
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

// A chain to the root; each rank adds its own data on the way.
void ring_reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  const int n = t.size(), place = (t.rank() - op.root + n) % n, next = (t.rank() + n - 1) % n,
            previous = (t.rank() + 1) % n;
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

void ring_reduce_scatter(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor) {
  reduce_scatter(t, team, Pieces(t, team, count), x, y, factor);
}

void ring_all_gather(Transport& t, const Team& team, void* y, int64_t count) {
  all_gather(t, team, Pieces(t, team, count), y);
}

const Algorithm ring = {.name = "ring",
                        .about = "2 (n - 1) steps, 2 (n - 1) / n of the bytes from each rank, between neighbours only",
                        .all_reduce = ring_all_reduce,
                        .reduce_scatter = ring_reduce_scatter,
                        .all_gather = ring_all_gather,
                        .broadcast = ring_broadcast,
                        .reduce = ring_reduce};

}  // namespace ringtape::comm

#include "comm/algorithm/halving_doubling.h"

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/fold.h"

namespace ringtape::comm {

namespace {

// Combines both sources in the order of the ranks, so that both sides of an exchange compute the same bits.
void combine_ordered(Transport& t, void* y, const void* mine, const void* theirs, bool mine_first, int64_t count,
                     double factor) {
  const void* const sources[] = {mine_first ? mine : theirs, mine_first ? theirs : mine};
  t.combine(y, sources, count, factor);
}

// The recursive steps. A buffer is divided at begin(first member of an actor); the elements between two such positions
// belong to one actor.
template <class Begin> struct Recursion {
  Transport& t;
  const Team& team;
  const Fold& fold;
  Begin begin;  // begin(team.size) is the whole count
  size_t width = size_of(t.operation().dtype);

  int64_t cut(int actor) const { return begin(actor == fold.actors ? team.size : fold.first_of(actor)); }
  int rank_of(int actor) const { return team.rank_of(fold.member_of(actor)); }

  // Each step sends the half with the partner's part and combines the other half with the received data, until only
  // this actor's part is left: in `sum`, at its place. `x` has the elements at the start; it may be `sum`.
  void halve(const void* x, void* sum, void* received, double factor) const {
    const int me = fold.actor();
    int low = 0;
    for (int half = fold.actors / 2; half > 0; half /= 2) {
      const bool lower = !(me & half);
      const int kept = low + (lower ? 0 : half), given = low + (lower ? half : 0);
      const int64_t from = cut(kept);
      const double last = half == 1 ? factor : 1.0;
      const auto add = [&](int64_t i, int64_t count) {
        combine_ordered(t, at(sum, from + i, width), at(x, from + i, width), at(received, i, width), lower, count,
                        last);
      };
      exchange_pieces(t, rank_of(me ^ half), at(x, cut(given), width), cut(given + half) - cut(given), received,
                      cut(kept + half) - from, add);
      x = sum;
      low = kept;
    }
  }

  // Each step exchanges all known parts with the partner, until every actor has all parts.
  void doubled(void* y) const {
    const int me = fold.actor();
    for (int known = 1; known < fold.actors; known *= 2) {
      const int mine = me / known * known, theirs = mine ^ known;
      t.exchange({send_to(rank_of(me ^ known), at(y, cut(mine), width), size_t(cut(mine + known) - cut(mine)) * width),
                  recv_from(rank_of(me ^ known), at(y, cut(theirs), width),
                            size_t(cut(theirs + known) - cut(theirs)) * width)});
    }
  }
};
template <class Begin> Recursion(Transport&, const Team&, const Fold&, Begin) -> Recursion<Begin>;

// Where a rank's part of the operation begins; for rank size(), the whole count.
int64_t begin_of(const Transport& t, int rank) { return rank == 0 ? 0 : t.part(rank - 1).end; }

void halving_doubling_all_reduce(Transport& t, const void* x, void* y) {
  halving_doubling_all_reduce(t, Team(t), x, y, t.operation().count, last_factor(t));
}

void halving_doubling_reduce_scatter(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Fold fold(team);
  const Recursion recursion{t, team, fold, [&](int member) { return begin_of(t, member); }};
  const int64_t whole = begin_of(t, team.size);
  const size_t width = recursion.width;
  const auto bytes = [&](int rank) { return size_t(t.part(rank).size()) * width; };
  if (team.size == 1) return t.copy(y, x, bytes(0));
  if (fold.idle()) {
    exchange_pieces(t, fold.partner(), x, whole, nullptr, 0, nothing);
    return t.exchange({recv_from(fold.partner(), y, bytes(t.rank()))});
  }
  void* const sum = t.scratch(size_t(2 * whole) * width);
  void* const received = at(sum, whole, width);
  if (fold.paired) {
    exchange_pieces(t, fold.partner(), nullptr, 0, received, whole, [&](int64_t i, int64_t n) {
      combine_ordered(t, at(sum, i, width), at(x, i, width), at(received, i, width), false, n, 1.0);
    });
    x = sum;
  }
  recursion.halve(x, sum, received, last_factor(t));
  t.copy(y, at(sum, begin_of(t, t.rank()), width), bytes(t.rank()));
  if (fold.paired)
    t.exchange({send_to(fold.partner(), at(sum, begin_of(t, fold.partner()), width), bytes(fold.partner()))});
}

void halving_doubling_all_gather(Transport& t, const void* x, void* y) {
  const Team team(t);
  const Fold fold(team);
  const Recursion recursion{t, team, fold, [&](int member) { return begin_of(t, member); }};
  const size_t width = recursion.width, whole = size_t(begin_of(t, team.size)) * width;
  const auto bytes = [&](int rank) { return size_t(t.part(rank).size()) * width; };
  if (fold.idle()) {
    t.exchange({send_to(fold.partner(), x, bytes(t.rank()))});
    return t.exchange({recv_from(fold.partner(), y, whole)});
  }
  t.copy(at(y, begin_of(t, t.rank()), width), x, bytes(t.rank()));
  if (fold.paired)
    t.exchange({recv_from(fold.partner(), at(y, begin_of(t, fold.partner()), width), bytes(fold.partner()))});
  recursion.doubled(y);
  if (fold.paired) t.exchange({send_to(fold.partner(), y, whole)});
}

}  // namespace

void halving_doubling_all_reduce(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor) {
  const Fold fold(team);
  const auto begin = [&](int member) { return member == team.size ? count : part_of(count, team.size, member).begin; };
  const Recursion recursion{t, team, fold, begin};
  const size_t width = recursion.width, bytes = size_t(count) * width;
  if (team.size == 1) return t.copy(y, x, bytes);
  const int partner = team.rank_of(fold.partner());
  if (fold.idle()) {
    exchange_pieces(t, partner, x, count, nullptr, 0, nothing);
    return t.exchange({recv_from(partner, y, bytes)});
  }
  void* const received = t.scratch(bytes);
  if (fold.paired) {
    exchange_pieces(t, partner, nullptr, 0, received, count, [&](int64_t i, int64_t n) {
      combine_ordered(t, at(y, i, width), at(x, i, width), at(received, i, width), false, n, 1.0);
    });
    x = y;
  }
  recursion.halve(x, y, received, factor);
  recursion.doubled(y);
  if (fold.paired) t.exchange({send_to(partner, y, bytes)});
}

const Algorithm halving_doubling = {
    .name = "halving_doubling",
    .about = "2 log2 n steps, 2 (n - 1) / n of the bytes from each rank; two more messages if n is not a power of two",
    .all_reduce = halving_doubling_all_reduce,
    .reduce_scatter = halving_doubling_reduce_scatter,
    .all_gather = halving_doubling_all_gather};

}  // namespace ringtape::comm

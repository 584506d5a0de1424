#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

namespace {

// A binomial tree over places, the root at 0: a place has children at place + 1, + 2, + 4 ... below its lowest bit, and
// the child at distance d is the root of a subtree of the d places from its own on.
struct Tree {
  Tree(const Transport& t, int root) : n(t.size()), root(root), place((t.rank() - root + n) % n) {
    while (reach < n && !(place & reach)) reach *= 2;
  }
  int rank_of(int p) const { return (p + root) % n; }
  int parent() const { return rank_of(place - reach); }     // of any place except 0
  int below() const { return std::min(reach, n - place); }  // places in the subtree of this one, including itself
  template <class F> void each_child(F&& f) const {         // the nearest first: f(place, size of its subtree)
    for (int d = 1; d < reach && place + d < n; d *= 2) f(place + d, std::min(d, n - place - d));
  }
  template <class F> void each_child_far_first(F&& f) const {  // the largest subtrees first
    for (int d = power_below(std::max(1, reach - 1)); d > 0; d /= 2)
      if (d < reach && place + d < n) f(place + d, std::min(d, n - place - d));
  }

  int n, root, place, reach = 1;
};

void broadcast_from(Transport& t, int root, void* y, size_t bytes) {
  const Tree tree(t, root);
  if (tree.place > 0) t.exchange({recv_from(tree.parent(), y, bytes)});
  Transport::Ticket last = 0;
  bool sent = false;
  tree.each_child_far_first([&](int child, int) {
    const Transfer message = send_to(tree.rank_of(child), y, bytes);
    last = t.start({&message, 1});
    sent = true;
  });
  if (sent) t.finish(last);
}

void reduce_to(Transport& t, int root, const void* x, void* y) {
  const Tree tree(t, root);
  const Operation& op = t.operation();
  const size_t bytes = op.bytes();
  if (tree.n == 1) return t.copy(y, x, bytes);
  // The received data; if there is no y, followed by the sum.
  void* const received = t.scratch(2 * bytes);
  void* const sum = tree.place == 0 ? y : at(received, op.count, size_of(op.dtype));
  tree.each_child([&](int child, int below) {
    t.exchange({recv_from(tree.rank_of(child), received, bytes)});
    const void* const sources[] = {x, received};
    t.combine(sum, sources, op.count, tree.place == 0 && child + below == tree.n ? last_factor(t) : 1.0);
    x = sum;
  });
  if (tree.place > 0) t.exchange({send_to(tree.parent(), x, bytes)});
}

void tree_broadcast(Transport& t, const void*, void* y) {
  broadcast_from(t, t.operation().root, y, t.operation().bytes());
}
void tree_reduce(Transport& t, const void* x, void* y) { reduce_to(t, t.operation().root, x, y); }

void tree_all_reduce(Transport& t, const void* x, void* y) {
  // Every rank uses y for the sum of its subtree.
  reduce_to(t, 0, x, y);
  broadcast_from(t, 0, y, t.operation().bytes());
}

void tree_barrier(Transport& t, const void*, void*) {
  const Tree tree(t, 0);
  tree.each_child([&](int child, int) { t.exchange({recv_from(tree.rank_of(child), nullptr, 0)}); });
  if (tree.place > 0) t.exchange({send_to(tree.parent(), nullptr, 0)});
  broadcast_from(t, 0, nullptr, 0);
}

// Copies the blocks of the places: from the order of the places to the order of the ranks, or back.
void rotate(Transport& t, const Tree& tree, const void* from, void* to, bool into_ranks) {
  const size_t bytes = t.operation().bytes();
  const int64_t count = t.operation().count;
  const size_t width = size_of(t.operation().dtype);
  const int tail = tree.n - tree.root;  // number of places before rank 0
  if (into_ranks) {
    t.copy(at(to, count * tree.root, width), from, bytes * size_t(tail));
    t.copy(to, at(from, count * tail, width), bytes * size_t(tree.root));
  } else {
    t.copy(to, at(from, count * tree.root, width), bytes * size_t(tail));
    t.copy(at(to, count * tail, width), from, bytes * size_t(tree.root));
  }
}

void tree_gather(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const Tree tree(t, op.root);
  const size_t width = size_of(op.dtype), bytes = op.bytes();
  if (tree.place > 0 && tree.below() == 1) return t.exchange({send_to(tree.parent(), x, bytes)});
  void* const blocks = tree.place == 0 && op.root == 0 ? y : t.scratch(bytes * size_t(tree.below()));
  t.copy(blocks, x, bytes);
  tree.each_child([&](int child, int below) {
    t.exchange(
        {recv_from(tree.rank_of(child), at(blocks, op.count * (child - tree.place), width), bytes * size_t(below))});
  });
  if (tree.place > 0) return t.exchange({send_to(tree.parent(), blocks, bytes * size_t(tree.below()))});
  if (blocks != y) rotate(t, tree, blocks, y, true);
}

void tree_scatter(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const Tree tree(t, op.root);
  const size_t width = size_of(op.dtype), bytes = op.bytes();
  if (tree.place > 0 && tree.below() == 1) return t.exchange({recv_from(tree.parent(), y, bytes)});
  const void* blocks = x;
  if (tree.place > 0 || op.root > 0) {
    void* const scratch = t.scratch(bytes * size_t(tree.below()));
    if (tree.place > 0) t.exchange({recv_from(tree.parent(), scratch, bytes * size_t(tree.below()))});
    else rotate(t, tree, x, scratch, false);
    blocks = scratch;
  }
  tree.each_child_far_first([&](int child, int below) {
    t.exchange(
        {send_to(tree.rank_of(child), at(blocks, op.count * (child - tree.place), width), bytes * size_t(below))});
  });
  t.copy(y, blocks, bytes);
}

}  // namespace

const Algorithm tree = {.name = "tree",
                        .about = "binomial: log2 n steps, the whole buffer in each",
                        .all_reduce = tree_all_reduce,
                        .broadcast = tree_broadcast,
                        .reduce = tree_reduce,
                        .gather = tree_gather,
                        .scatter = tree_scatter,
                        .barrier = tree_barrier};

}  // namespace ringtape::comm

#include <bit>
#include <cmath>

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

namespace {

// Two binary trees with one root, each with half of the bytes (Sanders, Speck and Traeff: Two-tree algorithms for full
// bandwidth broadcast, reduction and scan, 2009; the trees are NCCL's). A rank has children in at most one of them, so
// that it sends and receives equally much.
//
// A tree over places 0 ... n - 1: a place's lowest bit is its level; its children are at a distance of half that bit on
// both sides. Odd places are leaves; place 0 is the root, with one child.
struct TreeNode {
  TreeNode(int place, int n) {
    const int low = place == 0 ? std::bit_ceil(unsigned(n)) : place & -place;
    if (place > 0 && low > 1) children[count++] = place - low / 2;
    int right = low / 2;
    while (right > 0 && place + right >= n) right /= 2;
    if (right > 0) children[count++] = place + right;
    for (int p = place; p > 0; ++depth) {
      p = above(p, n);
      if (parent < 0) parent = p;
    }
  }
  static int above(int place, int n) {
    const int bit = place & -place, up = (place ^ bit) | bit << 1;
    return up < n ? up : place ^ bit;
  }

  int parent = -1, children[2] = {}, count = 0, depth = 0;
};

// The second tree has the ranks in the opposite order. If this would keep the leaves as leaves, it shifts the order by
// one place instead.
int place_of(int i, int tree, int n) { return tree == 0 || i == 0 ? i : n % 2 ? n - i : i % (n - 1) + 1; }
int from_place(int place, int tree, int n) {
  return tree == 0 || place == 0 ? place : n % 2 ? n - place : (place + n - 3) % (n - 1) + 1;
}

// alpha / beta of a link, in bytes: the bytes that could be sent during the latency of a message; see choice.cpp.
constexpr int64_t kInFlight = 128 << 10;

// Chunks go up the levels of a tree and down again. Each chunk is one round later than the previous one, and takes
// `lag` rounds from level to level. A rank starts the messages of a round together and finishes them lag rounds later,
// so that the links are always full. Both ends of a message know its round, and it depends only on messages of earlier
// rounds, so no two ranks wait for each other.
class Pass {
 public:
  Pass(Transport& t, int root, const void* x, void* y, bool up, bool down) : t_(t), x_(x), y_(y), root_(root) {
    const int n = t.size(), height = std::bit_width(unsigned(n - 1));
    const int64_t half = part_of(t.operation().count, 2, 0).size();
    // The last chunk's way through all levels costs the time of a chunk per level; each additional chunk costs the
    // minimum time of a message.
    const double best = std::sqrt(double(t.operation().bytes()) * double(kInFlight / 16) / height);
    const int64_t most = std::max<int64_t>(1, int64_t(std::min(best, double(kPiece))) / int64_t(width_));
    chunks_ = std::max<int64_t>(1, (half + most - 1) / most);
    chunk_ = (half + chunks_ - 1) / chunks_;
    const int64_t busy = 4 * std::max<int64_t>(1, chunk_ * int64_t(width_));  // bytes a round in the busier direction
    lag_ = std::min(1 + (kInFlight + busy / 2) / busy, chunks_);
    slots_ = std::min(2 * lag_, chunks_);
    int incoming = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const TreeNode node(place_of((t.rank() - root + n) % n, tree, n), n);
      const auto rank_of = [&](int place) { return (from_place(place, tree, n) + root) % n; };
      // all: rounds of the first chunks.
      const int64_t sum = (height - node.depth) * lag_, all = ((up ? height : 0) + node.depth - 1) * lag_;
      inner_[tree] = up && node.count > 0;
      summed_[tree] = sum - lag_;
      first_slot_[tree] = incoming;
      children_[tree] = node.count;
      for (int c = 0; c < node.count; ++c) {
        if (up) links_.push_back({tree, Transfer::Way::recv, rank_of(node.children[c]), sum - lag_, incoming++});
        if (down) links_.push_back({tree, Transfer::Way::send, rank_of(node.children[c]), all + lag_, kWhole});
      }
      if (node.parent < 0) continue;
      if (up)
        links_.push_back(
            {tree, Transfer::Way::send, rank_of(node.parent), sum, inner_[tree] ? first_slot_[tree] : kOwn});
      if (down) links_.push_back({tree, Transfer::Way::recv, rank_of(node.parent), all, kWhole});
    }
    rounds_ = ((up ? height : 0) + (down ? height : 0)) * lag_ + chunks_;
    if (incoming > 0) received_ = t.scratch(size_t(incoming * slots_ * chunk_) * width_);
  }

  void run() {
    std::vector<Transport::Ticket> tickets(static_cast<size_t>(lag_));
    std::vector<bool> any(static_cast<size_t>(lag_));
    std::vector<Transfer> transfers;
    for (int64_t round = 0; round < rounds_ + lag_; ++round) {
      transfers.clear();
      for (const Link& link : links_)
        if (const int64_t i = round - link.begin; i >= 0 && i < chunks_)
          transfers.push_back({link.way, link.peer, place(link, i), size_t(chunk(link.tree, i).size()) * width_});
      any[size_t(round % lag_)] = !transfers.empty();
      if (!transfers.empty()) tickets[size_t(round % lag_)] = t_.start(transfers);
      const int64_t due = round - lag_ + 1;
      if (due < 0 || !any[size_t(due % lag_)]) continue;
      t_.finish(tickets[size_t(due % lag_)]);
      for (int tree = 0; tree < 2; ++tree)
        if (const int64_t i = due - summed_[tree]; inner_[tree] && i >= 0 && i < chunks_) add(tree, i);
    }
  }

 private:
  static constexpr int kOwn = -1, kWhole = -2;  // instead of a slot: this rank's x; the result in y
  struct Link {
    int tree;
    Transfer::Way way;
    int peer;
    int64_t begin;  // the round of its first chunk
    int slot;       // for the sums from one child; the rank's own sum is in its first child's slot
  };

  Part chunk(int tree, int64_t i) const {
    const Part half = part_of(t_.operation().count, 2, tree), p = part_of(half.size(), int(chunks_), int(i));
    return {half.begin + p.begin, half.begin + p.end};
  }
  // A received chunk i stays until the sum has been forwarded: 2 lag rounds.
  void* slot(int number, int64_t i) const { return at(received_, (number * slots_ + i % slots_) * chunk_, width_); }
  void* place(const Link& link, int64_t i) const {
    if (link.slot >= 0) return slot(link.slot, i);
    return at(link.slot == kOwn ? x_ : y_, chunk(link.tree, i).begin, width_);
  }

  void add(int tree, int64_t i) {
    const Part part = chunk(tree, i);
    const bool last = t_.rank() == root_;
    const void* sources[3] = {at(x_, part.begin, width_)};
    for (int c = 0; c < children_[tree]; ++c) sources[c + 1] = slot(first_slot_[tree] + c, i);
    t_.combine(last ? at(y_, part.begin, width_) : slot(first_slot_[tree], i), {sources, size_t(children_[tree]) + 1},
               part.size(), last ? last_factor(t_) : 1.0);
  }

  Transport& t_;
  const void* x_;
  void* y_;
  const int root_;
  const size_t width_ = size_of(t_.operation().dtype);
  std::vector<Link> links_;
  bool inner_[2];
  int children_[2], first_slot_[2];
  int64_t summed_[2];       // the rounds in which the children's first chunks come
  int64_t chunks_, chunk_;  // number of chunks in each half; maximum number of elements of a chunk
  int64_t lag_, slots_, rounds_;
  void* received_ = nullptr;
};

void double_tree_all_reduce(Transport& t, const void* x, void* y) {
  if (t.size() == 1) return t.copy(y, x, t.operation().bytes());
  Pass(t, 0, x, y, true, true).run();
}
void double_tree_broadcast(Transport& t, const void*, void* y) {
  if (t.size() > 1) Pass(t, t.operation().root, nullptr, y, false, true).run();
}
void double_tree_reduce(Transport& t, const void* x, void* y) {
  if (t.size() == 1) return t.copy(y, x, t.operation().bytes());
  Pass(t, t.operation().root, x, y, true, false).run();
}

}  // namespace

const Algorithm double_tree = {
    .name = "double_tree",
    .about = "two binary trees in chunks: 2 log2 n steps and 2 times the bytes from each rank, whatever n is",
    .all_reduce = double_tree_all_reduce,
    .broadcast = double_tree_broadcast,
    .reduce = double_tree_reduce};

}  // namespace ringtape::comm

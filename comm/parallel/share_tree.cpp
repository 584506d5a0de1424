#include "comm/parallel/share_tree.h"

#include <bit>
#include <utility>

#include "core/check.h"
#include "kernels/combine.h"

namespace ringtape::comm {

int64_t split_of(Part node) { return node.begin + int64_t(std::bit_floor(uint64_t(node.size() - 1))); }

bool is_node(Part part, int64_t shares) {
  for (Part node{0, shares}; node.begin <= part.begin && part.end <= node.end;) {
    if (node.begin == part.begin && node.end == part.end) return true;
    const int64_t middle = split_of(node);
    (part.begin < middle ? node.end : node.begin) = middle;
  }
  return false;
}

static void add_nodes(std::vector<Part>& out, Part node, Part own) {
  if (own.end <= node.begin || node.end <= own.begin) return;
  if (own.begin <= node.begin && node.end <= own.end) return out.push_back(node);
  const int64_t middle = split_of(node);
  add_nodes(out, {node.begin, middle}, own);
  add_nodes(out, {middle, node.end}, own);
}

std::vector<Part> nodes_of(Part own, int64_t shares) {
  std::vector<Part> out;
  add_nodes(out, {0, shares}, own);
  return out;
}

// y += x, or the same in the other order, which has the same bits.
static void add_to(const Tensor& y, const Tensor& x) {
  combine(y, {{View(x).data, View(y).data}, 2}, ReduceOp::sum, 1.0);
}

void add_share(std::vector<ShareSum>& sums, ShareSum next, int64_t shares) {
  RT_CHECK(sums.empty() || sums.back().of.end == next.of.begin, "shares do not follow each other");
  while (!sums.empty()) {
    const Part both{sums.back().of.begin, next.of.end};
    if (!is_node(both, shares) || split_of(both) != next.of.begin) break;
    add_to(next.sum, sums.back().sum);
    next.of = both;
    sums.pop_back();
  }
  sums.push_back(std::move(next));
}

Tensor sum_of(std::vector<ShareSum> nodes, int64_t shares) {
  std::vector<ShareSum> sums;
  for (ShareSum& node : nodes) add_share(sums, std::move(node), shares);
  RT_CHECK(sums.size() == 1 && sums[0].of.begin == 0 && sums[0].of.end == shares, "the shares of ranks are not all");
  return sums[0].sum;
}

}  // namespace ringtape::comm

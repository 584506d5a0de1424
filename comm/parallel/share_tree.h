#pragma once
#include <cstdint>
#include <vector>

#include "core/part.h"
#include "core/tensor.h"

// A batch in a fixed number of shares, whose gradients are added in an order that depends on that number alone: in the
// tree T(a, b) = T(a, m) + T(m, b), m = a + the largest power of two below b - a, over shares [a, b). So the sum has
// the same bits whichever ranks computed them. A rank has consecutive shares: part_of(shares, ranks, rank).
namespace ringtape::comm {

// Where the node of these shares is split in two; it has more than one.
int64_t split_of(Part node);
bool is_node(Part part, int64_t shares);               // whether the tree of so many shares has this node
std::vector<Part> nodes_of(Part own, int64_t shares);  // the largest nodes within consecutive shares, in their order

// The sum of a node's shares.
struct ShareSum {
  Part of;
  Tensor sum;
};
// Adds `next`, the sum of the shares behind those of `sums`, to the last of them as long as both make a node.
void add_share(std::vector<ShareSum>& sums, ShareSum next, int64_t shares);
// Sums over all shares, from those of the nodes of all ranks, which are used up.
Tensor sum_of(std::vector<ShareSum> nodes, int64_t shares);

}  // namespace ringtape::comm

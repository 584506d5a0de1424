#pragma once
#include "comm/algorithm.h"

// One algorithm for each file of this folder.
namespace ringtape::comm {

extern const Algorithm direct, double_tree, doubling, fixed_order, halving_doubling, pairwise, ring, tree, two_level;

}  // namespace ringtape::comm

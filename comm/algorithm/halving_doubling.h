#pragma once
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

// x and y: `count` elements of each member, y = factor * all of them combined. y may be x.
// Any number of members. Uses scratch().
void halving_doubling_all_reduce(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor);

}  // namespace ringtape::comm

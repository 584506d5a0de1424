#pragma once
#include "comm/algorithm/parts.h"

// The halves of a ring's all-reduce, among some of the ranks. x and y are `count` elements in parts as part_of says, a
// part a member; two_level is built on them too.
namespace ringtape::comm {

// y (the place of this member's part alone, which may be that in x) = factor * the
// members' parts combined. Uses scratch().
void ring_reduce_scatter(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor);
// Fills y, where each member has its own part.
void ring_all_gather(Transport& t, const Team& team, void* y, int64_t count);

}  // namespace ringtape::comm

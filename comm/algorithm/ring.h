#pragma once
#include "comm/algorithm/parts.h"

// The two halves of a ring's all-reduce, among some of the ranks. x and y have `count` elements, divided by part_of()
// into one part per member. two_level uses them too.
namespace ringtape::comm {

// y (only this member's part, possibly its place in x) = factor * the members' parts combined. Uses scratch().
void ring_reduce_scatter(Transport& t, const Team& team, const void* x, void* y, int64_t count, double factor);
// Fills y, in which each member has already written its own part.
void ring_all_gather(Transport& t, const Team& team, void* y, int64_t count);

}  // namespace ringtape::comm

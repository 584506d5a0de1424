#pragma once
#include "comm/algorithm/parts.h"

// Sums in the order of the ranks, rounded once: the same bits from every transport and every number of pieces.
namespace ringtape::comm {

void fixed_order_all_reduce(Transport& t, const void* x, void* y);
void fixed_order_reduce_scatter(Transport& t, const void* x, void* y);
void fixed_order_reduce(Transport& t, const void* x, void* y);

}  // namespace ringtape::comm

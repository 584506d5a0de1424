#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// The first K elements of each sorted row of x (rows, N), and their places in it: values and indices (i64) are (rows,
// K), K <= N < 2^32; values has x's dtype (any). All contiguous. Equal elements keep their order. NaN is above all
// others: the last, or the first in descending order.
RT_KERNEL(sort_forward, void(View values, View indices, View x, bool descending));

}  // namespace ringtape

#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y[o, i, r] = x[o, index[o, i, r], r]: y and index (i64) are (O, I, R), x (O, N, R); y has x's dtype (any). All
// contiguous. An index outside [0, N) throws UsageError on the CPU; on CUDA it gives NaN, or 0 of integers.
RT_KERNEL(gather_forward, void(View y, View x, View index));

// y[o, index[o, i, r], r] += src[o, i, r], in the order of i. Shapes as above, with y (O, N, R) and src (O, I, R) of
// one dtype, not b8. Each sum is rounded to it: 16 bits are for `unique`, an index that has no number twice in a column
// (o, r). An index outside throws UsageError on the CPU; CUDA leaves it out.
RT_KERNEL(scatter_add_forward, void(View y, View index, View src, bool unique));

}  // namespace ringtape
